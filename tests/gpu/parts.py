"""What `make gpu-check` does, in order."""

from __future__ import annotations

from tests.gpu import kernel_checks, loads_bench, sgmv_bench, steps_bench
from tests.gpu.sections import Section


def parts(*, is_dry: bool) -> list[Section]:
    return [
        *kernel_checks.sections(is_dry=is_dry),
        Section("steps", steps_bench.measure, 140.0, alone=True),
        Section("products", sgmv_bench.measure, 75.0, alone=True),
        Section("loads", loads_bench.measure, 45.0, alone=True),
    ]
