"""Who, besides operators, may act for a tenant, and as what."""
