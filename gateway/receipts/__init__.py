"""Receipts: what a request used, under a MAC that its tenant can check without us."""
