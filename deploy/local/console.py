"""What the person at the terminal sees: a spinner per step on a terminal, plain lines anywhere else."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console


class Progress:
    """Says what is going on and how long each step took."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False, soft_wrap=True)

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        began = time.monotonic()
        if self._console.is_terminal:
            with self._console.status(what):
                yield
        else:
            self.say(f"{what} …")
            yield
        self.say(f"{what}: {time.monotonic() - began:.1f} s")

    def say(self, line: str) -> None:
        self._console.print(line, markup=False)

    def fail(self, line: str) -> None:
        self._console.print(f"motet: {line}", style="bold red", markup=False)
