"""The end of versions: retired for a while, restored within it, purged for good."""
