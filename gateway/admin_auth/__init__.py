"""Operators: passwords, sessions, bearer tokens."""
