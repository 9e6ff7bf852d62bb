"""Customers of the platform: who they are, what they may use, whether they are let in."""
