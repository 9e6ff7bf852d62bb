"""Settings of an engine replica: read once, frozen, every limit with its unit."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from pydantic import AliasChoices, Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from adapters.wire import MAX_BODY_BYTES
from engine.core.limits import num_newcomers


def _shared(name: str) -> AliasChoices:
    """A setting that engine and gateway share: `MOTET_ENGINE_<NAME>` wins over `MOTET_<NAME>`."""
    return AliasChoices(f"motet_engine_{name}", f"motet_{name}")


class EngineSettings(BaseSettings):
    """`MOTET_ENGINE_*` (and shared `MOTET_*`) variables; the command line overrides them by field name."""

    model_config = SettingsConfigDict(
        env_prefix="MOTET_ENGINE_",
        frozen=True,
        extra="ignore",
        populate_by_name=True,
        protected_namespaces=(),
    )

    # secrets
    token: SecretStr  # bearer token of every route but /healthz
    token_previous: SecretStr | None = None  # still taken while the token is rotated

    # who may find it
    register_url: str = ""  # gateway that it registers with; "" = it doesn't, and is listed or added there
    register_token: SecretStr | None = None  # the gateway's MOTET_REGISTRATION_TOKEN
    advertise_url: str = ""  # how gateways reach it
    pools: str = "general"  # comma-separated pools that it is in
    tls_cert: Path | None = None  # PEM, its key beside it in tls_key: it then speaks https
    tls_key: Path | None = None
    tls_client_ca: Path | None = None  # PEM of who signs gateways' certificates; None = none is asked for

    # where
    host: str = "127.0.0.1"
    port: int = Field(8090, ge=0, le=65_535)  # 0 = any free one
    model: Path = Field(validation_alias=_shared("base_model"))  # Hugging Face folder of the base
    name: str = Field(
        "", validation_alias=_shared("base_name")
    )  # public id of the base; "" = the folder's name
    store: str = Field("var/store", validation_alias=_shared("store_url"))
    cache_dir: Path = Field(Path("var/cache/adapters"), validation_alias=_shared("cache_dir"))
    journal_dir: Path = Field(Path("var/journal/engine"), validation_alias=_shared("journal_dir"))
    runtime_dir: Path | None = None  # holds the local sockets; None = a fresh temporary folder

    # the core
    device: Literal["auto", "cpu", "cuda"] = "auto"  # "auto" = a GPU if there is one that serves
    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    quantization: Literal["none", "fp8"] = "none"  # of weights, at load; "none" = as the checkpoint has them
    kv_cache_dtype: Literal["auto", "fp8_e4m3"] = "auto"  # "auto" = dtype
    kv_scales: Path | None = None  # of an FP8 cache (`motet engine calibrate`); None = measured at start
    slots: int = Field(8, ge=1, le=1_024)  # adapters in the batch's memory at a time
    host_bytes: int = Field(2 * 1024**3, ge=0)  # adapters in host memory
    cache_bytes: int = Field(20 * 1024**3, ge=0)  # adapters on disk
    device_adapter_bytes: int | None = Field(None, ge=1)  # adapters in slots; None = unbounded, or for a GPU:
    # as many as there are slots, of rank 64
    loader_threads: int = Field(2, ge=1, le=64)  # adapter loads from disk under way
    store_threads: int = Field(8, ge=1, le=64)  # and from the store, half of them at most for one owner
    adapter_loads_per_s: float = Field(10.0, gt=0)  # of one owner, once its burst of 40 is used up
    adapter_load_bytes_per_s: int = Field(512 * 1024**2, ge=1)  # the same in bytes, after 4 GiB
    adapter_owner_share: float = Field(0.5, gt=0, le=1)  # of each tier, for one owner while others want some
    block_size: int = Field(16, ge=1, le=256)  # tokens of one KV block
    num_blocks: int | None = Field(None, ge=1)  # None = as many as fit in kv_bytes
    kv_bytes: int = Field(1024**3, ge=1)
    max_running: int = Field(64, ge=1, le=4_096)  # sequences in one step
    token_budget: int = Field(256, ge=2)  # tokens computed in one step; more than max_running
    max_adapters_per_step: int | None = Field(None, ge=1)  # adapters in one step; None = as many as slots
    itl_stretch: float = Field(1.7, ge=0)  # prompts stretch the steps of others so many times; 0 = unbounded
    target_itl_ms: float = Field(0.0, ge=0)  # fewer sequences run where steps take longer; 0 = no target
    max_model_len: int | None = Field(None, ge=2)  # None = what the model says
    threads: int = Field(0, ge=0)  # compute threads of each process; 0 = the cores, shared out evenly
    tensor_parallel: int = Field(1, ge=1, le=64)  # processes that compute the model together
    trace_plans: Path | None = None  # file for a trace of what the runner is told, token ids included
    trace_bytes: int = Field(1024**3, ge=1_024)  # the trace ends at this size

    # the server
    max_body_bytes: int = Field(MAX_BODY_BYTES, ge=1)
    body_timeout_s: float = Field(30.0, gt=0)
    inline_encode_bytes: int = Field(4_096, ge=0)  # a longer prompt is encoded in a thread
    stream_buffer_tokens: int = Field(16_384, ge=1)  # unread tokens of a stream before it is cut
    recent_requests: int = Field(16_384, ge=1)  # ended attempts whose usage an abort can still be told
    state_watchers: int = Field(64, ge=1)  # open /internal/state streams
    adapter_wait_s: float = Field(120.0, gt=0)  # PUT of an adapter
    proofs: int = Field(2, ge=0, le=64)  # of adapters at a time, one an owner; 0 = this replica proves none
    proof_timeout_s: float = Field(120.0, gt=0)  # of one, load included
    proof_nice: int = Field(10, ge=0, le=19)  # priority of the process that computes dense twins
    proof_longest: Literal["once", "asked"] = "once"  # "once": the longest context for each class of ranks
    purge_wait_s: float = Field(20.0, gt=0)  # for requests that still run on an adapter that is purged
    ready_timeout_s: float = Field(600.0, gt=0)  # the core must hold its model by then
    stall_s: float = Field(120.0, gt=0)  # a core silent for so long is ended, and the replica with it
    core_silence_s: float = Field(30.0, gt=1)  # the core says something each second: silent so long, it hangs
    drain_s: float = Field(20.0, ge=0)  # SIGTERM: running requests may finish this long
    keep_alive_s: int = Field(75, ge=1)

    @field_validator("token", "token_previous")
    @classmethod
    def _long_enough(cls, token: SecretStr | None) -> SecretStr | None:
        if token is not None and len(token.get_secret_value()) < 16:
            raise ValueError("an engine token has at least 16 characters")
        return token

    @field_validator("itl_stretch")
    @classmethod
    def _stretches(cls, stretch: float) -> float:
        if 0 < stretch <= 1:
            raise ValueError("itl_stretch must be more than 1: else no prompt is computed beside an answer")
        return stretch

    @model_validator(mode="after")
    def _leaves_room(self) -> EngineSettings:
        if self.token_budget <= self.max_running:
            raise ValueError("token_budget must be more than max_running: else prompts starve behind answers")
        return self

    @model_validator(mode="after")
    def _can_register(self) -> EngineSettings:
        if self.register_url and (self.register_token is None or not self.advertise_url):
            raise ValueError("register_url needs register_token and advertise_url")
        if (self.tls_cert is None) != (self.tls_key is None) or (self.tls_client_ca and not self.tls_cert):
            raise ValueError("tls_cert and tls_key go together, and tls_client_ca needs them")
        return self

    @property
    def pool_names(self) -> list[str]:
        return [name.strip() for name in self.pools.split(",") if name.strip()]

    @property
    def base_name(self) -> str:
        return self.name or self.model.resolve().name

    @property
    def tokens(self) -> tuple[bytes, ...]:
        """The bearer tokens that open the door."""
        both = (self.token, self.token_previous)
        return tuple(token.get_secret_value().encode() for token in both if token is not None)

    @property
    def admission_limit(self) -> int:
        """Requests open at a time: the running limit and a quarter, so that the next ones are at hand; all
        others wait in the gateway's fair queue, not here."""
        return self.max_running + self.max_running // 4


class CoreSettings(BaseSettings):
    """What the core process is told, as JSON: no secrets among it."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    server_pid: int  # whose end is this process's end
    endpoint: str  # ipc address of the server's frames
    model: Path
    name: str
    store: str
    cache_dir: Path
    journal_dir: Path
    device: Literal["auto", "cpu", "cuda"]
    dtype: Literal["bfloat16", "float32"]
    quantization: Literal["none", "fp8"]
    kv_cache_dtype: Literal["auto", "fp8_e4m3"]
    kv_scales: Path | None
    slots: int
    host_bytes: int
    cache_bytes: int
    device_adapter_bytes: int | None
    loader_threads: int
    store_threads: int
    adapter_loads_per_s: float
    adapter_load_bytes_per_s: int
    adapter_owner_share: float
    block_size: int
    num_blocks: int | None
    kv_bytes: int
    max_running: int
    token_budget: int
    max_adapters_per_step: int | None
    itl_stretch: float
    target_itl_ms: float
    max_model_len: int | None
    threads: int
    tensor_parallel: int
    trace_plans: Path | None
    trace_bytes: int
    max_open: int

    @property
    def max_rows(self) -> int:
        """Sequences in one step, those of newcomers included."""
        return self.max_running + num_newcomers(self.max_running, self.token_budget)

    @classmethod
    def of(cls, settings: EngineSettings, endpoint: str) -> CoreSettings:
        fields = set(cls.model_fields) - {"server_pid", "endpoint", "name", "max_open"}
        return cls(
            server_pid=os.getpid(),
            endpoint=endpoint,
            name=settings.base_name,
            max_open=2 * settings.admission_limit,
            **settings.model_dump(include=fields),
        )
