"""Settings of the gateway and control processes: read once from the environment, frozen, every limit with
its unit."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from adapters.wire import MAX_BODY_BYTES
from gateway.client_address import ForwardedHeader


class Settings(BaseSettings):
    """`MOTET_*` environment variables. Secrets have no default."""

    model_config = SettingsConfigDict(env_prefix="MOTET_", frozen=True, extra="ignore")

    # truth and counters
    database_url: str = Field(repr=False)  # role motet_app: row-level security applies
    database_system_url: str = Field(repr=False)  # role motet_system
    redis_url: str = Field(repr=False)
    store_url: str  # file:///… or s3://bucket/prefix
    home: Path = Path("var")
    journal_dir: Path

    # secrets
    pepper: SecretStr  # HMAC key of API keys, >= 32 characters
    pepper_previous: SecretStr | None = None
    data_key: SecretStr | None = None  # seals answers at rest, >= 32 characters; absent: the pepper does
    data_key_previous: SecretStr | None = None
    receipt_key: SecretStr | None = None  # tenants' receipt keys come of it, >= 32; absent: the data key
    receipt_key_previous: SecretStr | None = None
    engine_token: SecretStr  # bearer token of the replicas that have none of their own
    engine_token_previous: SecretStr | None = None  # still sent to those that don't take the new one yet
    registration_token: SecretStr | None = Field(default=None, min_length=16)  # absent: no replica registers
    registration_token_previous: SecretStr | None = Field(default=None, min_length=16)
    metrics_token: SecretStr | None = None  # asked for at /metrics when set

    # what is served
    base_model: str  # folder of the base model: tokenizer, template and shapes are read here, never weights
    base_name: str  # its public id
    base_digests: str = ""  # comma-separated weights that may serve it, or "any"; "" = as the database says
    replicas: str = ""  # comma-separated URLs of replicas, besides those that are registered
    replica_ca: Path | None = None  # PEM of who signs certificates of replicas; None = the system's
    replica_client_cert: Path | None = None  # PEM that is shown to replicas, with its key
    replica_client_key: Path | None = None
    public_url: str = "http://127.0.0.1:8080"  # as browsers write it; may have a path
    admin_ui_dir: Path | None = None  # the built admin UI; None = the checkout's own
    oidc_providers: SecretStr | None = None  # JSON, a list; who may log people in (gateway/oidc/settings.py)
    trusted_proxies: str = ""  # comma-separated networks of reverse proxies that tell whom they speak for
    forwarded_header: ForwardedHeader = ForwardedHeader.X_FORWARDED_FOR  # the one that they write
    log_client_address: bool = False  # personal data: only where somebody needs it
    cors_origins: str = ""  # comma-separated; scripts of these may read answers under /v1
    control_host: str = "127.0.0.1"  # where the control process serves /healthz and /metrics
    control_port: int = 8081
    webhook_networks: str = ""  # comma-separated: where webhooks may go besides the public internet
    webhook_http: bool = False  # without TLS, into those networks only
    webhook_ports: str = "443,8443"  # of public endpoints
    import_s3: str = ""  # comma-separated s3://bucket/prefix/ that adapters may be imported from
    import_urls: str = ""  # comma-separated https://host/path/, likewise; redirects too must lead to one
    import_networks: str = ""  # comma-separated: where those may be besides the public internet
    billing_issuer: str = "Motet"  # who issues the invoices, on statements and in exports

    # limits
    session_idle_s: float = Field(default=8 * 3600, gt=0)  # of an account in a browser, without a request
    session_life_s: float = Field(default=24 * 3600, gt=0)  # whatever happens
    max_connections: int = Field(4_096, ge=1)  # of one worker, and no more than its file limit leaves
    idle_connection_s: float = 75.0  # longer than the usual 60 s of a proxy, so that the proxy closes first
    write_timeout_s: float = 60.0  # how long an answer may lie unread; of a stream, all its pauses together
    stream_keep_alive_s: float = 15.0  # of silence, after which a stream says a comment
    change_streams: int = Field(256, ge=1)  # that a worker holds open (docs/API.md, Changes)
    change_streams_account: int = Field(8, ge=1)
    open_requests: int = Field(3_072, ge=1)  # inference requests that a worker holds open
    open_requests_tenant: int = Field(2_048, ge=1)
    max_body_bytes: int = MAX_BODY_BYTES
    body_timeout_s: float = 30.0
    max_upload_bytes: int = 2 * 1024 * 1024 * 1024
    upload_timeout_s: float = 3600.0
    tenant_adapter_bytes: int = 100 * 1024**3  # of versions that are not purged, and open uploads
    tenant_adapter_versions: int = 10_000  # of one tenant, not purged
    tenant_open_uploads: int = Field(default=32, ge=1)  # resumable, that are no version yet
    upload_idle_h: float = Field(default=24.0, gt=0)  # a resumable upload goes so long after its last byte
    upload_age_h: float = Field(default=168.0, gt=0)  # and after its first
    proof_wait_s: float = Field(default=30.0, ge=0)  # an upload's answer waits for its proof, at most
    tenant_placed_slots: int = Field(default=4, ge=0)  # that its placements may take, over all replicas
    tenant_placed_bytes: int = Field(default=256 * 1024**2, ge=0)  # of their memory for adapters, the same
    key_cache_entries: int = 10_000
    key_cache_s: float = 10.0  # a cached key is looked up anew after this long; a change is seen sooner
    key_stale_s: float = Field(default=300.0, ge=0)  # a known key goes on so long while PostgreSQL is away
    lease_s: float = 60.0  # a concurrency lease not renewed for this long is free again
    queue_items: int = 4_096  # waiting requests a worker, all tenants
    queue_items_tenant: int = 1_024
    queue_tokens: int = 16_000_000  # that waiting requests may use at most, a worker
    queue_tokens_tenant: int = 4_000_000
    queue_bytes: int = 256 * 1024 * 1024  # of bodies of waiting requests, a worker
    queue_bytes_tenant: int = 64 * 1024 * 1024
    queue_wait_s: float = 120.0
    queue_aging_s: float = 10.0  # a line of a class that stood so long goes on in the class above
    queue_weight_interactive: int = Field(12, ge=1)  # shares of tokens while all classes wait
    queue_weight_standard: int = Field(6, ge=1)
    queue_weight_batch: int = Field(2, ge=1)
    replica_running: int = 64  # choices in flight at one replica, of all gateways; its running limit
    connect_timeout_s: float = 2.0
    first_byte_timeout_s: float = 300.0
    idle_timeout_s: float = 120.0  # between two upstream bytes
    max_attempts: int = Field(default=3, ge=1, le=31)
    retry_share: float = Field(default=0.1, ge=0, le=1)  # repeated attempts for each first one, most
    retry_grace_ms: int = Field(default=2_000, ge=0, le=60_000)  # a client that left has for its retry
    idempotency_answer_bytes: int = 1024 * 1024  # of one answer kept for retries, sealed
    idempotency_tenant_bytes: int = 16 * 1024 * 1024
    response_cache_entry_bytes: int = 256 * 1024
    response_cache_tenant_bytes: int = 64 * 1024 * 1024
    response_cache_wait_s: float = Field(default=10.0, ge=0, lt=15)  # for an equal request that runs
    drain_notice_s: float = 0.0  # between saying that it stops (/readyz) and taking no new connection
    drain_s: float = 6.0  # for open requests after that
    billing_close_grace_h: float = 48.0  # after a month's end, before it is closed
    request_events_minute: int = Field(default=600, ge=1)  # of one tenant, kept whole; beyond it ever fewer
    request_events_days: int = Field(default=7, ge=1, le=3660)
    request_minutes_h: int = Field(default=6, ge=2)  # figures by the minute; then by quarters of an hour
    request_quarters_days: int = Field(default=7, ge=1)  # those; then by the hour
    request_metrics_days: int = Field(default=35, ge=1)
    offboarding_grace_h: int = Field(168, ge=1, le=2_160)  # before a tenant that leaves is purged
    workers: int = 1
    worker_id: int = 0  # place of this worker among them; set by the parent

    @property
    def class_weights(self) -> tuple[int, ...]:
        """By class, as the queue numbers them."""
        return (self.queue_weight_interactive, self.queue_weight_standard, self.queue_weight_batch)
