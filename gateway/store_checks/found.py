"""What one look at the store found, as it is kept and shown."""

from __future__ import annotations

from typing import Final

import msgspec

MAX_EXAMPLES: Final = 50


class Example(msgspec.Struct, frozen=True):
    """One thing that is wrong. `what` is a field of `Found`."""

    what: str
    path: str
    tenant: str | None = None
    artefact: str | None = None


class Found(msgspec.Struct, kw_only=True):
    """Counts. `clean` looks at those that stand for a fault."""

    stored: int = 0  # artefacts in the store
    others: int = 0  # objects that are no artefact of a tenant known here: left alone
    kept: int = 0  # artefacts that versions keep
    checked: int = 0  # whose bytes were read against their checksums
    orphans: int = 0  # no version keeps them, and they are older than an upload takes
    young: int = 0  # no version keeps them yet: an upload under way, most likely
    missing: int = 0  # kept, and not in the store
    truncated: int = 0  # kept, and of another size
    corrupt: int = 0  # kept, and not what was put
    unfinished: int = 0  # puts that never ended
    leftovers: int = 0  # folders of killed processes on control's machine
    removed: int = 0  # orphans that this check removed
    discarded: int = 0  # unfinished puts and leftovers that it removed
    marked_lost: int = 0  # artefacts whose versions resolve no more
    found_again: int = 0  # artefacts whose versions resolve again
    examples: list[Example] = msgspec.field(default_factory=list)

    @property
    def faults(self) -> int:
        return self.orphans + self.missing + self.truncated + self.corrupt + self.unfinished + self.leftovers

    def show(self, example: Example) -> None:
        if len(self.examples) < MAX_EXAMPLES:
            self.examples.append(example)
