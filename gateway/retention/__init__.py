"""How long things of tenants are kept: kinds, defaults, each tenant's own rules, and the job that sweeps."""
