"""One adapter as the pool knows it: who wants it, where it is, who runs on it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from engine.core.plan import LoadedAdapter
from engine.core.protocol import AdapterRef


class Lane(StrEnum):
    """Where a load is served. Each lane has threads of its own, so that a store that hangs holds up no file
    that is on this machine's disk."""

    DISK = "disk"
    STORE = "store"


class Reason(StrEnum):
    """Why an adapter left a tier."""

    ROOM = "room"  # another needed its place, and nothing ran on it
    DRAINED = "drained"  # another had waited for too long: nothing more was admitted until it fell idle
    RETIRED = "retired"  # its version is gone
    HOST = "host"  # its slot was emptied since it left host memory


@dataclass(slots=True)
class Wait:
    """For a slot, or for host memory. Others make way only while nothing else is lacking."""

    since: float
    tried: float  # last, when it could have begun at once


@dataclass(slots=True, eq=False)
class Entry:
    """An adapter that is not absent, or that somebody wants."""

    ref: AdapterRef
    users: int = 0  # open requests
    proofs: int = 0  # of them
    pins: int = 0  # running sequences
    loaded: LoadedAdapter | None = None
    slot: int | None = None
    installed: float = 0.0  # when it got its slot
    served: bool = False  # pinned since it was loaded
    used: int = 0  # the pool's count of uses, newest highest
    used_at: float = 0.0  # when a request last came or went, or a sequence ran
    host_credit: float = 0.0  # the tiers' aging clocks at its last use (`Aging`)
    slot_credit: float = 0.0
    lane: Lane = Lane.DISK  # of its next load, or of the one under way
    loading: bool = False
    charged: bool = False  # the load was charged to its owner's rate
    hinted: bool = False  # a hint waits for it
    hint_by: float = float("inf")  # when the hint expects its first use
    kept_until: float = float("-inf")  # came by a hint: not evicted before its first use until then
    placed_until: float = float("-inf")  # somebody asked for it to be kept until then, used or not
    placed_on_device: bool = False  # in its slot, too
    leaving: bool = False  # nothing more is admitted on it, so that its host memory becomes free
    retiring: bool = False

    @property
    def yields(self) -> bool:
        """Nobody but proofs wants it."""
        return self.users == self.proofs

    @property
    def artefact(self) -> str:
        return self.ref.artefact

    @property
    def owner(self) -> str:
        return self.ref.owner

    @property
    def host_kept_until(self) -> float:
        return max(self.kept_until, self.placed_until)

    @property
    def slot_kept_until(self) -> float:
        return max(self.kept_until, self.placed_until) if self.placed_on_device else self.kept_until

    @property
    def num_bytes(self) -> int:
        """In host memory."""
        return 0 if self.loaded is None else self.loaded.num_bytes

    @property
    def device_bytes(self) -> int:
        """In the device's memory while it has a slot, rounded up to its size class."""
        return 0 if self.loaded is None else self.loaded.device_bytes

    def check(self, pins: int, users: int) -> None:
        """Asserts that it agrees with what is known of its running sequences and open requests."""
        assert self.pins == pins, "pins are running sequences"
        assert self.users == users, "users are open requests"
        assert self.pins == 0 or self.slot is not None, "what runs is in a slot"
        assert self.slot is None or self.loaded is not None, "what is in a slot is in host memory"
