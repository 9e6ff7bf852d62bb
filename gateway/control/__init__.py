"""The leader's jobs."""

from gateway.control.process import run_control

__all__ = ["run_control"]
