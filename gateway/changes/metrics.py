"""Prometheus series of changes."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

STREAMS = Gauge("motet_change_streams", "Streams of changes that are open.", multiprocess_mode="livesum")
REFUSED = Counter("motet_change_streams_refused", "Streams that were not opened.", ["bound"])
ENDED = Counter("motet_change_streams_ended", "Streams that were ended from here.", ["reason"])
CHANGES = Counter("motet_changes", "Changes that were heard of while somebody followed.", ["kind"])
