"""What the parts of one core share. Each field has one owner for what it may change: its own class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.core.adapter_pool import AdapterPool
from engine.core.block_pool import BlockPool
from engine.core.counting import TokenCounters
from engine.core.ending import Endings
from engine.core.journal import Journal
from engine.core.limits import CoreConfig, ModelFacts
from engine.core.request import Finish
from engine.core.scheduler import Scheduler


@dataclass(frozen=True, slots=True)
class CoreState:
    """Built once by the loop; belongs to the step thread."""

    config: CoreConfig
    model: ModelFacts
    clock: Callable[[], float]  # seconds; only differences mean anything
    journal: Journal
    blocks: BlockPool
    adapters: AdapterPool
    scheduler: Scheduler
    endings: Endings
    tokens: TokenCounters
    finish: Finish
