"""How an alias is spread over versions: 10,000 buckets, each of which is one version's.

A conversation falls into the same bucket for as long as the spread has its seed. A change of weights moves as
many buckets as it has to and no more: a version that is to have fewer gives up its last ones, one that is to
have more takes those. A spread that begins anew has a new seed, so that it is not always the same few on whom
new versions are tried.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

BUCKETS: Final = 10_000
PERCENT: Final = 100
MAX_VERSIONS: Final = 5
MAX_RANGES: Final = 64
"""Beyond it the buckets are laid out anew, which moves more of them than it has to."""
SEED_BYTES: Final = 16

Range = tuple[int, int]
"""(the bucket that it ends before, version); a range begins where the one before ends."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Two versions or more. `ranges` ascend and end at `BUCKETS`."""

    seed: bytes
    ranges: tuple[Range, ...]

    @property
    def weights(self) -> dict[int, int]:
        """Version → percent, by version."""
        found: dict[int, int] = {}
        begin = 0
        for end, version in self.ranges:
            found[version] = found.get(version, 0) + end - begin
            begin = end
        return {version: found[version] * PERCENT // BUCKETS for version in sorted(found)}

    def version_of(self, bucket: int) -> int:
        return next(version for end, version in self.ranges if bucket < end)

    def row(self) -> dict[str, Any]:
        """As the column `aliases.spread` holds it."""
        return {"seed": self.seed.hex(), "ranges": [list(each) for each in self.ranges]}

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Spread:
        return cls(bytes.fromhex(row["seed"]), tuple((end, version) for end, version in row["ranges"]))


def bucket_of(seed: bytes, sticky: bytes) -> int:
    """Nobody who does not know the seed can choose where it falls."""
    return int.from_bytes(blake2b(sticky, key=seed, digest_size=8).digest()) % BUCKETS


def heaviest(weights: Mapping[int, int]) -> int:
    """The version that most goes to; of equal ones the older."""
    return min(weights, key=lambda version: (-weights[version], version))


def spread_over(weights: Mapping[int, int], before: Spread | None) -> Spread | None:
    """`weights` in percent, 100 in all; None when one version has it all. `before`: the spread that it
    changes, if there was one."""
    assert sum(weights.values()) == PERCENT
    assert all(weight > 0 for weight in weights.values())
    if len(weights) == 1:
        return None
    wanted = {version: weight * BUCKETS // PERCENT for version, weight in weights.items()}
    if before is not None:
        ranges = _changed(before.ranges, wanted)
        if len(ranges) <= MAX_RANGES:
            return Spread(before.seed, ranges)
    return Spread(secrets.token_bytes(SEED_BYTES), _laid_out(wanted))


def _laid_out(wanted: Mapping[int, int]) -> tuple[Range, ...]:
    ranges, end = [], 0
    for version in sorted(wanted):
        end += wanted[version]
        ranges.append((end, version))
    return tuple(ranges)


def _changed(ranges: tuple[Range, ...], wanted: Mapping[int, int]) -> tuple[Range, ...]:
    """Each version keeps its first buckets, as many as it is to have; what is free goes to those that lack
    some."""
    left = dict(wanted)
    kept: list[tuple[int, int | None]] = []  # (length, version; None = free)
    begin = 0
    for end, version in ranges:
        keeps = min(end - begin, left.get(version, 0))
        if version in left:
            left[version] -= keeps
        kept += [(keeps, version), (end - begin - keeps, None)]
        begin = end
    pieces: list[tuple[int, int]] = []
    lacking = sorted(version for version, length in left.items() if length)
    for length, holder in kept:
        if holder is not None:
            pieces.append((length, holder))
            continue
        free = length
        while free:
            taken = min(free, left[lacking[0]])
            pieces.append((taken, lacking[0]))
            left[lacking[0]] -= taken
            free -= taken
            if not left[lacking[0]]:
                del lacking[0]
    return _joined(pieces)


def _joined(pieces: list[tuple[int, int]]) -> tuple[Range, ...]:
    """Neighbours of one version are one range."""
    ranges: list[Range] = []
    end = 0
    for length, version in pieces:
        if not length:
            continue
        end += length
        if ranges and ranges[-1][1] == version:
            ranges.pop()
        ranges.append((end, version))
    return tuple(ranges)
