"""Metering: a durable journal in each worker, one ledger, and what tenants see of it."""
