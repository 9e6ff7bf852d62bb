"""Telling tenants' own servers what happened: signed, repeated, and to no address inside."""
