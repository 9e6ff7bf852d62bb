"""Metrics kept in memory reach the file that a scrape reads. In a process of its own: prometheus_client
chooses its kind of values when it is imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from gateway.telemetry import METRICS_DIR

_COUNTS = """
import threading
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from gateway import metric_values
from gateway.telemetry import render_metrics

before = Counter("before", "Made before they are kept.", ["of"]).labels("x")
metric_values.keep_in_memory()
histogram = Histogram("spent", "Time.", buckets=(1.0,))
gauge = Gauge("open", "Now.", multiprocess_mode="livesum")

def count():
    for _ in range(20_000):
        before.inc()

threads = [threading.Thread(target=count) for _ in range(4)]
[each.start() for each in threads]
[each.join() for each in threads]
histogram.observe(0.5)
gauge.inc(3)
gauge.dec()
in_file = CollectorRegistry()
MultiProcessCollector(in_file)
unwritten = generate_latest(in_file).decode()
assert 'before_total{of="x"} 0.0' in unwritten, unwritten
written = render_metrics().decode()
assert 'before_total{of="x"} 80000.0' in written, written
assert 'spent_bucket{le="1.0"} 1.0' in written, written
assert 'spent_sum 0.5' in written, written
assert 'open 2.0' in written, written
gauge.set(7)
before.inc()
assert 'open 7.0' in render_metrics().decode()
assert 'before_total{of="x"} 80001.0' in render_metrics().decode()
"""


def test_what_is_counted_in_memory_is_scraped_exactly(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _COUNTS],
        env={**os.environ, METRICS_DIR: str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
