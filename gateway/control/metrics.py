"""Metrics of the control process, at its own `/metrics`."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

LEADS = Gauge("motet_control_leads", "Whether this control process leads.")
JOBS = Counter("motet_control_jobs_total", "Rounds of jobs.", ["job", "outcome"])
JOB_DONE = Gauge("motet_control_job_done_timestamp_seconds", "When the job last ended well.", ["job"])
UNSETTLED = Gauge("motet_control_unsettled_lines", "Lines of engine journals without a ledger row yet.")
UNSETTLED_AGE = Gauge(
    "motet_control_oldest_unsettled_seconds", "How long the oldest of them has been known here."
)
