"""The Redis keys of a tenant's limits. All share one hash tag, so that a script touches one slot of a
cluster."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.principal import Principal
from gateway.redis import RedisKey, TenantKeys


@dataclass(frozen=True, slots=True)
class LimitKeys:
    """The keys of one tenant and one of its API keys, in the order in which the scripts take them."""

    tenant: TenantKeys
    key_id: str

    @classmethod
    def of(cls, principal: Principal) -> LimitKeys:
        return cls(TenantKeys(principal.tenant), principal.key_id)

    @property
    def requests(self) -> list[RedisKey]:
        return self._both("requests")

    @property
    def tokens(self) -> list[RedisKey]:
        return self._both("tokens")

    @property
    def leases(self) -> list[RedisKey]:
        return self._both("leases")

    @property
    def epoch(self) -> RedisKey:
        return self.tenant.epoch

    def line(self, pool: str, service_class: str) -> RedisKey:
        """Where the tenant stands in the queue before a pool of replicas (`gateway/queueing/share.lua`)."""
        return self.tenant.key("line", pool, service_class)

    def reservation(self, request_id: str) -> RedisKey:
        return self.tenant.key("reservation", request_id)

    def _both(self, what: str) -> list[RedisKey]:
        return [self.tenant.key(what), self.tenant.key("key", self.key_id, what)]
