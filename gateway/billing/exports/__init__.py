"""Charges as files: FOCUS columns first, ours after, CSV and Parquet, with a manifest that comes last."""
