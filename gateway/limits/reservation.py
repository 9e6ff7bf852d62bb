"""What one request holds of the limits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gateway.billing.price_book.prices import Selector
from gateway.limits.amounts import NO_TOKENS, Tokens, Used
from gateway.limits.asks import Answer, Place
from gateway.limits.levels import Bucket, Plan
from gateway.limits.verdict import rate_headers
from gateway.queueing.classes import CLASSES
from gateway.queueing.ticket import Ticket

if TYPE_CHECKING:
    from gateway.catalog.resolved import Resolved


@dataclass(slots=True)
class Reservation:
    """Owned by its request's walk until `settle`."""

    request_id: str
    plan: Plan
    service_class: str
    epoch: int  # tenant's, as last seen; another than the principal's = resolve again
    headers: dict[str, str] = field(default_factory=dict)  # x-ratelimit-*
    tokens: Tokens = NO_TOKENS  # reserved
    money: int = 0  # reserved, in units of 10⁻¹²
    selector: Selector | None = None  # which price holds; known once its model is
    ticket: Ticket | None = None  # where it stands in the queue
    holds_place: bool = True  # False: its client left, and it runs on
    reserved: bool = False
    local: bool = False  # admitted by this worker's own share, and not told to Redis yet
    id: str = ""  # under which the store knows it

    def __post_init__(self) -> None:
        self.id = self.id or self.request_id

    def for_model(self, resolved: Resolved) -> None:
        """From now on it is held to the limits of the model too, and known what it costs."""
        adapter = resolved.adapter
        self.plan = self.plan.of_model(resolved)
        self.selector = Selector(
            resolved.base_id,
            adapter.owner if adapter else None,
            adapter.name if adapter else None,
            self.service_class,
        )

    def observe(self, buckets: tuple[Bucket, ...], answer: Answer) -> None:
        if answer.epoch is not None:
            self.epoch = answer.epoch
        if answer.left:
            self.headers.update(rate_headers(buckets, answer.left))

    def place(self) -> Place | None:
        ticket = self.ticket
        return None if ticket is None else self._place(ticket, ticket.floor, ticket.length)

    def place_used(self, used: Used) -> Place | None:
        ticket = self.ticket
        if ticket is None:
            return None
        return self._place(ticket, ticket.floor, ticket.used_length(used.tokens.total))

    def _place(self, ticket: Ticket, floor: float, length: float) -> Place:
        line = self.plan.tenant.key("line", ticket.pool, CLASSES[ticket.index])
        return Place(line, floor, length, ticket.served)
