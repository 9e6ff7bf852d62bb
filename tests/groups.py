"""What one worker takes whole where several run the tests (`make test`), so that a fixture is started once.

Marks (`--dist loadgroup`) would say the same, but xdist 3.8 loses them under pytest 9.2 (its issue 1386).
"""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling

TOGETHER = {
    "tests/admin_ui/": "admin-ui",
    "tests/deploy/test_monitoring.py": "platform",
    "tests/deploy/test_up.py": "platform",
    "tests/e2e/": "platform",
    "tests/engine/server/": "engine",
    "tests/rig/": "rig",
}
"""Beginnings of paths → who shares a fixture of the session. All else goes by file."""


class ByFixture(LoadScopeScheduling):  # type: ignore[misc] # xdist has no types
    """Groups are handed out whole, those of most tests first."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.split("::", 1)[0]
        return next((group for start, group in TOGETHER.items() if path.startswith(start)), path)
