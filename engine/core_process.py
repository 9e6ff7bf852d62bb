"""The engine core's process: builds the model, the adapters' way in, the journal and the loop, and runs it.

Started by the server (`engine/server/core_child.py`) with its settings as one JSON argument; exits 0 after a
drain, 1 when it can't start or go on, with the reason said to the server first.
"""

from __future__ import annotations

import contextlib
import logging
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
from engine.core.plan import AdapterSource, Runner
from engine.core.protocol import Failed
from engine.core.replay import NamingSource, RecordedRunner
from engine.core.trace import TraceWriter
from engine.core.transport import CoreTransport
from engine.model.adapter_source import AdapterFiles
from engine.model.config import ModelRefused
from engine.model.opening import open_runner
from engine.model.parallel import RankLost
from engine.process_life import end_with, outlive_parent
from engine.server.logs import set_up_logs

CAN_NOT_START = (
    ModelRefused,
    RankLost,
    UnsupportedBase,
    JournalError,
    StoreError,
    OSError,
    ValueError,
    MemoryError,
)

log = logging.getLogger("engine.core")


SWITCH_S = 0.0005
"""How long another thread (one that loads an adapter) keeps the interpreter from the step thread, which takes
it back dozens of times a step; Python's own 5 ms would be added to the steps of all."""


def main(arguments: list[str]) -> int:
    set_up_logs()
    sys.setswitchinterval(SWITCH_S)
    settings = CoreSettings.model_validate_json(arguments[0])
    end_with(settings.server_pid)  # nobody looks at the socket while the model loads
    with _connected(settings) as transport, contextlib.ExitStack() as closing:
        try:
            loop = _build(settings, transport, closing)
        except CAN_NOT_START as error:
            log.exception("the engine core can't start")
            transport.send([Failed(f"The engine core can't start: {error}")])
            return 1
        outlive_parent()  # from here on the loop looks, and journals what is open
        return loop.run_forever()


@contextlib.contextmanager
def _connected(settings: CoreSettings) -> Iterator[CoreTransport]:
    transport = CoreTransport(settings.endpoint, parent_pid=settings.server_pid)
    try:
        yield transport
    finally:
        transport.close()


def _build(settings: CoreSettings, transport: CoreTransport, closing: contextlib.ExitStack) -> Loop:
    base = BaseSpec.from_dir(settings.model, settings.name)
    journal = closing.enter_context(contextlib.closing(Journal(settings.journal_dir)))
    cache = DiskCache(settings.cache_dir, settings.cache_bytes, open_store(settings.store))
    opened = open_runner(settings, closing)
    model = opened.model
    threads = {Lane.DISK: settings.loader_threads, Lane.STORE: settings.store_threads}
    source, recorded = _recorded(
        settings, AdapterFiles(cache, base, opened.prepare, opened.device_bytes), opened.runner, closing
    )
    loaders = LoaderThreads(source, threads, transport.wake)
    facts = ModelFacts(
        base_id=base.base_id,
        base_digest=model.base_digest,
        max_model_len=model.max_model_len,
        vocab_size=model.vocab_size,
        eos_token_ids=model.eos_token_ids,
    )
    parts = Parts(runner=recorded, loaders=loaders, transport=transport, journal=journal)
    return Loop(_core_config(settings, model.num_blocks, opened.device_adapter_bytes), facts, parts)


def _recorded(
    settings: CoreSettings, source: AdapterSource, runner: Runner, closing: contextlib.ExitStack
) -> tuple[AdapterSource, Runner]:
    """Both as they are, or with a trace written of what the runner is told."""
    if settings.trace_plans is None:
        return source, runner
    writer = TraceWriter(settings.trace_plans, settings.trace_bytes)
    closing.callback(writer.close)
    return NamingSource(source), RecordedRunner(runner, writer)


def _core_config(settings: CoreSettings, num_blocks: int, device_adapter_bytes: int | None) -> CoreConfig:
    return CoreConfig(
        num_blocks=num_blocks,
        block_size=settings.block_size,
        step_tokens=settings.token_budget,
        max_running=settings.max_running,
        max_adapters_per_step=settings.max_adapters_per_step,
        itl_stretch=settings.itl_stretch or None,
        target_itl_ms=settings.target_itl_ms or None,
        max_open=settings.max_open,
        num_slots=settings.slots,
        host_budget_bytes=settings.host_bytes,
        loader_threads=settings.loader_threads,
        device_budget_bytes=device_adapter_bytes or settings.device_adapter_bytes,
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
