"""What changed, as it happens: one feed a worker, however many follow it."""
