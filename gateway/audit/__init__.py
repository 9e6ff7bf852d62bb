"""The append-only log of who changed what."""
