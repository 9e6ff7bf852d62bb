"""The leader's jobs."""

from gateway.control.process import run_control
from gateway.control.web import CanNotListen

__all__ = ["CanNotListen", "run_control"]
