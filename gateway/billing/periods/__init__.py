"""Months: open, and then closed for good."""
