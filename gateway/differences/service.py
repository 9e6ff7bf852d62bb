"""Two versions that the caller may see, compared."""

from __future__ import annotations

import asyncio

from gateway.differences.comparing import compare
from gateway.differences.schemas import DiffOut
from gateway.principal import Principal
from gateway.proofs.schemas import ProofOut
from gateway.proofs.service import Proofs


async def difference(
    proofs: Proofs, principal: Principal, name: str, numbers: tuple[int, int], base: str
) -> DiffOut:
    """`numbers`: the old side and the new one. Raises `NotFound`."""
    old, new = [await proofs.report(principal, name, number) for number in numbers]
    same = old.version.content_digest == new.version.content_digest
    # Thousands of modules are a few milliseconds, which nobody's stream should wait for.
    return await asyncio.to_thread(
        lambda: compare(ProofOut.of(old, base), ProofOut.of(new, base), same_content=same)
    )
