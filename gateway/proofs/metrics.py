"""Metrics of proofs, in workers and in control."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

PROOFS = Counter("motet_proofs_total", "Proofs begun here, by what they came to.", ["outcome"])
PROOF_SECONDS = Histogram(
    "motet_proof_seconds",
    "From taking a proof to its end, acceptance prompts included.",
    buckets=(0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 120, 600),
)
WAITING = Gauge("motet_proofs_waiting", "Proofs that are to do, as control's leader counted them.")
