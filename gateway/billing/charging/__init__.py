"""From ledger rows to money: rollups of their buckets, the charges that these come to, re-rating."""
