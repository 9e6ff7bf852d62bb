"""HTTP of what needs attention: operators only."""

from __future__ import annotations

from litestar import get
from litestar.di import NamedDependency

from gateway.attention.schemas import Attention
from gateway.services import Services


@get("/api/v1/attention", summary="What needs an operator's attention first, and the queue as it is now")
async def get_attention(services: NamedDependency[Services]) -> Attention:
    return await services.lookout.look()


handlers = [get_attention]
