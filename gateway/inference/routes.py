"""HTTP of inference: two ASGI handlers, so that nothing stands around their streams."""

from __future__ import annotations

import time
from typing import Any, Final

from litestar import asgi
from litestar.types import Receive, Send
from litestar.types import Scope as AsgiScope

from gateway.access import EPOCH_CHECKED, METHODS, SCOPE, principal_of
from gateway.inference.call import Endpoint
from gateway.inference.open_requests import NoRoom
from gateway.inference.schemas import CHAT_OPERATION, COMPLETIONS_OPERATION
from gateway.inference.service import Door
from gateway.openapi import OPERATION
from gateway.principal import Scope
from gateway.services import services_of

_OPT: Final[dict[str, Any]] = {METHODS: ("POST",), SCOPE: Scope.INFERENCE, EPOCH_CHECKED: True}


@asgi(Endpoint.CHAT.value, opt={**_OPT, OPERATION: CHAT_OPERATION}, copy_scope=False)
async def chat_completions(scope: AsgiScope, receive: Receive, send: Send) -> None:
    """Answer a conversation, whole or as a stream."""
    await _serve(Endpoint.CHAT, scope, receive, send)


@asgi(Endpoint.COMPLETIONS.value, opt={**_OPT, OPERATION: COMPLETIONS_OPERATION}, copy_scope=False)
async def completions(scope: AsgiScope, receive: Receive, send: Send) -> None:
    """Continue a text, whole or as a stream."""
    await _serve(Endpoint.COMPLETIONS, scope, receive, send)


async def _serve(endpoint: Endpoint, scope: AsgiScope, receive: Receive, send: Send) -> None:
    principal, serving = principal_of(scope), services_of(scope).serving
    try:
        with serving.open_requests.one_of(principal.tenant):
            await serving.walk.serve(Door(endpoint, principal, scope, receive, time.monotonic()), send)
    except NoRoom as error:
        serving.turned_away(scope, principal, error)
        raise


handlers = [chat_completions, completions]
