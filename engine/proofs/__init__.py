"""Proofs of adapters on a running replica, off its serving path (docs/decisions/0082)."""
