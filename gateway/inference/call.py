"""What the walk knows of one request, and of its attempts at replicas."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import Enum
from math import inf
from typing import TYPE_CHECKING
from uuid import UUID

from adapters import headers
from adapters.wire import InferenceRequest
from gateway.catalog.resolved import Resolved
from gateway.events.trace import Trace
from gateway.limits.amounts import NOTHING, Tokens, Used
from gateway.principal import Principal
from gateway.queueing.fair_queue import Place
from gateway.queueing.ticket import Ticket
from gateway.replicas.driver import Trailer, Upstream
from gateway.replicas.replica import Load, Replica
from gateway.replicas.want import ANYTHING, Want

if TYPE_CHECKING:
    from gateway.inference.keeping import Keeping


class Endpoint(Enum):
    CHAT = "/v1/chat/completions"
    COMPLETIONS = "/v1/completions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request that was read and may be asked, and is not counted yet."""

    request_id: UUID
    client_request_id: str | None
    endpoint: Endpoint
    principal: Principal
    body: bytes = field(repr=False)
    request: InferenceRequest
    resolved: Resolved
    arrived: float  # monotonic clock
    deadline: float | None = None  # on the same clock: the client waits no longer for the first byte
    arrived_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    trace: Trace = field(default_factory=Trace, repr=False)


@dataclass(slots=True)
class Call:
    """An admitted, counted request: everything that is settled before it waits."""

    request_id: UUID
    client_request_id: str | None
    endpoint: Endpoint
    principal: Principal
    body: bytes
    request: InferenceRequest
    resolved: Resolved
    prompt_tokens: int
    max_tokens: int  # each choice's most, the default included
    arrived: float  # monotonic clock
    deadline: float | None = None  # on the same clock: the client waits no longer for the first byte
    purpose: str = "tenant"
    arrived_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    prefix: tuple[int, ...] = ()  # hashes of the prompt's beginnings (`gateway/replicas/want.py`)
    session: str | None = None  # in the client's words
    want: Want = ANYTHING  # of the router; set by `Dispatcher.aim`, and nothing else changes

    @property
    def tokens(self) -> Tokens:
        """What is reserved: the prompt once, and every choice at its longest."""
        return Tokens(self.prompt_tokens, self.request.num_choices * self.max_tokens)

    @property
    def most_tokens(self) -> int:
        return self.tokens.total

    @property
    def artefact(self) -> str | None:
        return self.resolved.adapter.artefact if self.resolved.adapter else None

    def time_left(self) -> float:
        """Seconds until the client gives up; infinite when it named no time."""
        return inf if self.deadline is None else self.deadline - time.monotonic()

    def with_rights(self, principal: Principal, resolved: Resolved) -> Call:
        """The same request under the tenant's present state."""
        return replace(self, principal=principal, resolved=resolved)

    def engine_headers(self, attempt: int, deadline_ms: int) -> dict[str, str]:
        """`deadline_ms`: from now to the first token; past it the engine gives up what it has not begun."""
        found = {
            headers.REQUEST: str(self.request_id),
            headers.ATTEMPT: str(attempt),
            headers.TENANT: str(self.principal.tenant),
            headers.KEY: self.principal.key_id,
            headers.SALT: self.principal.salt,
            headers.SERVICE_CLASS: self.principal.service_class,
            headers.DEADLINE_MS: str(deadline_ms),
            headers.MAX_TOKENS: str(self.max_tokens),
            headers.PURPOSE: self.purpose,
        }
        if (adapter := self.resolved.adapter) is not None:
            found[headers.ARTEFACT] = adapter.artefact
            found[headers.OWNER] = str(adapter.owner)
            found[headers.VERSION] = self.resolved.version_label
        return found


@dataclass(slots=True, eq=False)
class Attempt:
    """One try at one replica. Owned by its request's walk; ended exactly once (`ending.py`)."""

    number: int
    replica: Replica
    load: Load
    upstream: Upstream | None = None
    first: bytes = b""  # the first bytes of a stream, or a whole unary body
    trailer: Trailer | None = None
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    async def close(self) -> None:
        self.load.release()
        if self.upstream is not None:
            await self.upstream.close()


@dataclass(slots=True)
class Trip:
    """The part of a request that changes: where it is now. Whoever ends it looks here."""

    call: Call
    ticket: Ticket | None = None  # its place in its tenant's line
    place: Place | None = None
    attempt: Attempt | None = None
    tries: int = 0
    tried: list[Replica] = field(default_factory=list)
    used: Used = NOTHING
    keeping: Keeping | None = None  # of a request whose answer may be given again
    trace: Trace = field(default_factory=Trace)

    @property
    def next_number(self) -> int:
        """Of the attempt that begins now; a request that another worker began goes on counting."""
        return self.tries + (self.keeping.attempts_after if self.keeping is not None else 0)

    def leave_place(self, *, ran: bool = True) -> None:
        if self.place is not None:
            self.place.leave(self.used.tokens.total if ran else None)
            self.place = None
