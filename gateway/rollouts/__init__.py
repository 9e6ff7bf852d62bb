"""A new version's way into an alias: step by step, watched, and back by itself."""
