"""The engine core's process: builds the model, the adapters' way in, the journal and the loop, and runs it.

Started by the server (`engine/server/core_child.py`) with its settings as one JSON argument; exits 0 after a
drain, 1 when it can't start or go on, with the reason said to the server first.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import signal
import sys
from collections.abc import Iterator

from adapters.base import BaseSpec, UnsupportedBase
from adapters.disk_cache import DiskCache
from adapters.store import StoreError, open_store
from engine.config import CoreSettings
from engine.core.adapter_entry import Lane
from engine.core.adapter_loader import LoaderThreads
from engine.core.adapter_rules import AdapterRules
from engine.core.journal import Journal, JournalError
from engine.core.limits import CoreConfig, ModelFacts
from engine.core.loop import Loop, Parts
from engine.core.protocol import Failed
from engine.core.transport import CoreTransport
from engine.model.adapter_source import AdapterFiles
from engine.model.config import ModelRefused
from engine.model.runner import ModelRunner, RunnerOptions
from engine.server.logs import set_up_logs

CAN_NOT_START = (ModelRefused, UnsupportedBase, JournalError, StoreError, OSError, ValueError, MemoryError)

PR_SET_PDEATHSIG = 1

log = logging.getLogger("engine.core")


def main(arguments: list[str]) -> int:
    set_up_logs()
    settings = CoreSettings.model_validate_json(arguments[0])
    _end_with(settings.server_pid)
    with _connected(settings) as transport:
        try:
            loop, journal = _build(settings, transport)
        except CAN_NOT_START as error:
            log.exception("the engine core can't start")
            transport.send([Failed(f"The engine core can't start: {error}")])
            return 1
        with contextlib.closing(journal):
            _signal_at_parents_end(0)  # from here on the loop looks, and journals what is open
            return loop.run_forever()


def _end_with(server_pid: int) -> None:
    """While the model loads, which takes long, nobody looks at the socket: a server that was killed meanwhile
    must not leave a core that holds its memory and its journal."""
    _signal_at_parents_end(signal.SIGKILL)
    if os.getppid() != server_pid:
        raise SystemExit(1)


def _signal_at_parents_end(number: int) -> None:
    """0 = none. Linux only; elsewhere the loop sees it, once it runs."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0)


@contextlib.contextmanager
def _connected(settings: CoreSettings) -> Iterator[CoreTransport]:
    transport = CoreTransport(settings.endpoint, parent_pid=settings.server_pid)
    try:
        yield transport
    finally:
        transport.close()


def _build(settings: CoreSettings, transport: CoreTransport) -> tuple[Loop, Journal]:
    base = BaseSpec.from_dir(settings.model, settings.name)
    journal = Journal(settings.journal_dir)
    cache = DiskCache(settings.cache_dir, settings.cache_bytes, open_store(settings.store))
    runner = ModelRunner(settings.model, _runner_options(settings))
    _check_capacity(runner)
    threads = {Lane.DISK: settings.loader_threads, Lane.STORE: settings.store_threads}
    loaders = LoaderThreads(AdapterFiles(cache, base), threads, transport.wake)
    facts = ModelFacts(
        base_id=base.base_id,
        base_digest=runner.base_digest,
        max_model_len=runner.max_model_len,
        vocab_size=runner.vocab_size,
        eos_token_ids=runner.eos_token_ids,
    )
    parts = Parts(runner=runner, loaders=loaders, transport=transport, journal=journal)
    return Loop(_core_config(settings, runner.num_blocks), facts, parts), journal


def _check_capacity(runner: ModelRunner) -> None:
    """Raises `ModelRefused` where the KV cache can't hold one request of the length that is promised."""
    capacity = runner.num_blocks * runner.block_size
    if capacity < runner.max_model_len - 1:  # the KV of the very last token is never computed
        raise ModelRefused(
            f"the KV cache holds {capacity} tokens, less than the context of {runner.max_model_len}: "
            "raise --kv-bytes (or --num-blocks), or lower --max-model-len"
        )


def _runner_options(settings: CoreSettings) -> RunnerOptions:
    return RunnerOptions(
        dtype=settings.dtype,
        max_model_len=settings.max_model_len,
        num_blocks=settings.num_blocks,
        kv_bytes=settings.kv_bytes,
        block_size=settings.block_size,
        num_slots=settings.slots,
        num_threads=settings.threads or os.cpu_count() or 1,
        quantization=settings.quantization,
        kv_cache_dtype=settings.kv_cache_dtype,
        kv_scales=settings.kv_scales,
    )


def _core_config(settings: CoreSettings, num_blocks: int) -> CoreConfig:
    return CoreConfig(
        num_blocks=num_blocks,
        block_size=settings.block_size,
        step_tokens=settings.token_budget,
        max_running=settings.max_running,
        max_open=settings.max_open,
        num_slots=settings.slots,
        host_budget_bytes=settings.host_bytes,
        loader_threads=settings.loader_threads,
        device_budget_bytes=settings.device_adapter_bytes,
        adapters=AdapterRules(
            store_threads=settings.store_threads,
            store_loads_per_owner=max(1, settings.store_threads // 2),
            loads_per_s=settings.adapter_loads_per_s,
            load_bytes_per_s=settings.adapter_load_bytes_per_s,
            owner_share=settings.adapter_owner_share,
        ),
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
