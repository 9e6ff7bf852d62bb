"""What to look at first, out of what replicas, catalog, ledger, budgets, store and queue tell."""
