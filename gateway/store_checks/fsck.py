"""The object store against the catalog: what is left over, missing or broken, and mended on request.

An upload stores its artefact before its version has a row, and a purge ends a version's claim before it
removes the artefact, so a process that dies in between leaves an object that nobody will ever ask for. Its
age tells it from one that is being uploaded; it goes under the lock that uploads and purges hold. Objects of
tenants that this database doesn't know, and of any other form, are not ours and stay.

An object that is missing, cut or rotten is lost: with `repair`, its versions stop resolving, which says so at
once and everywhere, instead of failing wherever no replica has a copy. It stays where it is; an upload of the
same content replaces it, and so does a copy that is put back into the bucket, once a check has read it.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final, Literal
from uuid import UUID

import structlog

from adapters.packed import PackedCorrupt, verify
from adapters.store import Corrupt, NotFound, ObjectStore, artefact_of, artefact_path
from gateway.catalog import stored
from gateway.catalog.lifecycle import Shelf
from gateway.catalog.spool import Spool
from gateway.db import Database
from gateway.principal import TenantId
from gateway.store_checks.found import Example, Found
from gateway.store_checks.lost import Lost
from gateway.store_checks.metrics import MISSING, ORPHANS_REMOVED

log = structlog.get_logger(__name__)

ORPHAN_AGE_S: Final = 3_600.0
"""Longer than the last steps of any upload take."""

PAGE: Final = 500
MAX_ORPHANS: Final = 10_000
"""Removed in one round; the next goes on."""

SAMPLE: Final = 100
"""Artefacts whose bytes a sampled check reads, drawn anew each time."""

AT_ONCE: Final = 8
Depth = Literal["listed", "sampled", "full"]

Stored = tuple[TenantId, str]
"""An owner and an artefact of its."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What the catalog says of an artefact that versions keep."""

    stored: Stored
    num_bytes: int
    lost: bool


@dataclass(slots=True)
class _Look:
    """One check under way."""

    found: Found = field(default_factory=Found)
    bad: list[Stored] = field(default_factory=list)
    whole: list[Claim] = field(default_factory=list)


class Fsck:
    """Belongs to the leader. Its calls raise `StoreError` and `Unavailable`, and may be cut anywhere.
    `spools` are those of this machine."""

    def __init__(
        self,
        database: Database,
        shelf: Shelf,
        lost: Lost | None = None,
        spools: Sequence[Spool] = (),
        *,
        orphan_age_s: float = ORPHAN_AGE_S,
    ) -> None:
        self._database = database
        self._shelf = shelf
        self._lost = lost or Lost(database)
        self._spools = spools
        self._orphan_age_s = orphan_age_s

    async def check(self, *, repair: bool, depth: Depth) -> Found:
        """Looks at everything. `sampled` and `full` read some or all artefacts, too."""
        look = _Look()
        orphans = await self._list(look.found)
        await self._hold_against_claims(look)
        await self._read(look, depth)
        await self._unfinished(look.found, repair=repair)
        if repair:
            look.found.removed = await self._remove(orphans)
            look.found.marked_lost = await self._lost.mark(look.bad)
            doubted = [claim.stored for claim in look.whole if claim.lost]
            look.found.found_again = await self._lost.unmark(doubted)
        MISSING.set(look.found.missing)
        return look.found

    async def remove_orphans(self) -> int:
        """Gives how many were removed."""
        return await self._remove(await self._list(Found()))

    async def find_missing(self) -> int:
        """Gives how many artefacts that versions keep are not in the store; each is logged."""
        look = _Look()
        await self._hold_against_claims(look)
        MISSING.set(look.found.missing)
        return look.found.missing

    async def _list(self, found: Found) -> list[Stored]:
        """The orphans in the store."""
        orphans: list[Stored] = []
        async for page, others in _pages(self._shelf.store):
            found.stored += len(page)
            found.others += others
            async with self._database.system_reader() as session:
                unreferenced = await stored.unreferenced(session, page)
            for each in unreferenced:
                if await self._is_old(each):
                    found.orphans += 1
                    found.show(_example("orphans", each))
                    orphans.append(each)
                else:
                    found.young += 1
            if len(orphans) >= MAX_ORPHANS:
                break
        return orphans

    async def _remove(self, orphans: Iterable[Stored]) -> int:
        removed = 0
        for owner, artefact in orphans:
            removed += await self._shelf.clear(owner, [artefact])
        ORPHANS_REMOVED.inc(removed)
        return removed

    async def _hold_against_claims(self, look: _Look) -> None:
        after, seen = UUID(int=0), set[Stored]()
        while True:
            async with self._database.system_reader() as session:
                page = await stored.list_stored(session, after, PAGE)
            if not page:
                return
            claims = [
                Claim((TenantId(tenant), artefact), num_bytes, lost)
                for _, tenant, artefact, num_bytes, lost in page
                if (TenantId(tenant), artefact) not in seen
            ]
            seen |= {claim.stored for claim in claims}
            for start in range(0, len(claims), AT_ONCE):
                some = claims[start : start + AT_ONCE]
                await asyncio.gather(*(self._measure(look, claim) for claim in some))
            after = page[-1][0]

    async def _measure(self, look: _Look, claim: Claim) -> None:
        """Whether it is there, and as long as it was."""
        found = look.found
        found.kept += 1
        try:
            size = await asyncio.to_thread(self._shelf.store.size, _path(claim.stored))
        except NotFound:
            what = "missing"
        else:
            if size == claim.num_bytes:
                look.whole.append(claim)
                return
            what = "truncated"
        tenant, artefact = claim.stored
        async with self._database.tenant_reader(tenant) as session:
            if not await stored.is_referenced(session, tenant, artefact):  # purged meanwhile
                return
        log.error(f"artefact_{what}", tenant=str(tenant), artefact=artefact)
        setattr(found, what, getattr(found, what) + 1)
        found.show(_example(what, claim.stored))
        look.bad.append(claim.stored)

    async def _read(self, look: _Look, depth: Depth) -> None:
        """Some or all of those that seem whole, against their checksums; and any that was lost."""
        drawn = look.whole
        if depth != "full":
            doubted = [claim for claim in look.whole if claim.lost]
            rest = [claim for claim in look.whole if not claim.lost] if depth == "sampled" else []
            drawn = doubted + random.sample(rest, min(SAMPLE, len(rest)))
        rotten = set[Stored]()
        with tempfile.TemporaryDirectory(prefix="motet-fsck-") as folder:
            for number, claim in enumerate(drawn):
                target = Path(folder) / str(number)
                if not await asyncio.to_thread(self._is_sound, claim.stored, target):
                    rotten.add(claim.stored)
                look.found.checked += 1
        for each in sorted(rotten, key=str):
            log.error("artefact_corrupt", tenant=str(each[0]), artefact=each[1])
            look.found.corrupt += 1
            look.found.show(_example("corrupt", each))
            look.bad.append(each)
        look.whole = [claim for claim in look.whole if claim.stored not in rotten]

    def _is_sound(self, stored: Stored, target: Path) -> bool:
        """Read twice before it is called rotten: a transfer may break bytes, too."""
        for _ in range(2):
            try:
                self._shelf.store.fetch_file(_path(stored), target)
                verify(target, stored[1])
            except (PackedCorrupt, Corrupt):
                continue
            except NotFound:  # purged meanwhile, or lost in this moment: the next check tells
                return True
            else:
                return True
            finally:
                target.unlink(missing_ok=True)
        return False

    async def _unfinished(self, found: Found, *, repair: bool) -> None:
        store = self._shelf.store
        puts = await asyncio.to_thread(
            lambda: list(islice(store.unfinished(self._orphan_age_s), MAX_ORPHANS))
        )
        for put in puts:
            found.unfinished += 1
            found.show(Example("unfinished", put.path))
            if repair:
                await asyncio.to_thread(store.discard, put)
                found.discarded += 1
        for spool in self._spools:
            left = len(await asyncio.to_thread(spool.sweep, look_only=not repair))
            found.leftovers += left
            found.discarded += left if repair else 0

    async def _is_old(self, stored: Stored) -> bool:
        try:
            age_s = await asyncio.to_thread(self._shelf.store.age_s, _path(stored))
        except NotFound:  # deleted meanwhile
            return False
        return age_s > self._orphan_age_s


async def _pages(store: ObjectStore) -> AsyncIterator[tuple[list[Stored], int]]:
    """Every stored artefact, and how many other objects lie between them."""
    paths = store.list("tenants")
    while page := await asyncio.to_thread(lambda: list(islice(paths, PAGE))):
        ours = [each for path in page if (each := _stored(path)) is not None]
        yield ours, len(page) - len(ours)


def _stored(path: str) -> Stored | None:
    named = artefact_of(path)
    if named is None:
        return None
    owner, artefact = named
    try:
        return TenantId(UUID(owner)), artefact
    except ValueError:
        return None


def _example(what: str, stored: Stored) -> Example:
    return Example(what, _path(stored), str(stored[0]), stored[1])


def _path(stored: Stored) -> str:
    owner, artefact = stored
    return artefact_path(str(owner), artefact)
