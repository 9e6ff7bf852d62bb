"""A tenant's row as what the walk needs of it."""

from __future__ import annotations

from gateway.models import Tenant
from gateway.principal import CacheMode, CachePolicy

MAX_AGE_S = 7 * 24 * 3600


def cache_policy(tenant: Tenant) -> CachePolicy | None:
    """None when the tenant's response cache is off."""
    mode = CacheMode(tenant.response_cache)
    if mode is CacheMode.OFF:
        return None
    return CachePolicy(mode, tenant.cache_epoch, tenant.response_cache_age_s)
