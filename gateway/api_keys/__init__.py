"""API keys: made, shown once, proved at the door, revoked."""
