"""Where things lie in the home of `motet up`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from deploy.local.models import DEMO_MODEL


@dataclass(frozen=True)
class Home:
    """The state folder; every path is absolute."""

    root: Path

    @property
    def lock(self) -> Path:
        return self.root / "up.lock"

    @property
    def secrets(self) -> Path:
        return self.root / "secrets.json"

    @property
    def demo(self) -> Path:
        return self.root / "demo.json"

    @property
    def store(self) -> Path:
        return self.root / "store"

    @property
    def cache(self) -> Path:
        """What can be made again."""
        return self.root / "cache"

    @property
    def model(self) -> Path:
        return self.cache / DEMO_MODEL

    @property
    def database(self) -> Path:
        return self.root / "postgres"

    @property
    def gateway_run(self) -> Path:
        """Written by the running gateway: its process ids."""
        return self.root / "run" / "gateway.json"

    def log(self, name: str) -> Path:
        return self.root / "log" / f"{name}.log"

    def journal(self, name: str) -> Path:
        return self.root / "journal" / name

    def adapter_cache(self, replica: int) -> Path:
        """A cache each: its byte budget is counted by one process."""
        return self.cache / f"adapters-{replica}"
