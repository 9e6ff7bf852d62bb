"""`make gpu-check`: whether all that runs on a GPU computes what its twins do, and how fast.

Needs a CUDA device of compute capability 9.0 or later with some 40 GB, a C compiler (Triton calls it), and of
packages torch, triton, safetensors, msgspec, numpy and pytest: no installation of the project, no model, no
network. Takes less than eight minutes, most of it for compiling kernels. Ends with 1 if anything failed.

`--dry` runs the same code at tiny sizes in Triton's interpreter, where times tell nothing: to know that the
check itself works.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 475.0


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dry", action="store_true", help="tiny sizes, on the CPU")
    parser.add_argument("--only", action="append", default=[], help="a section by its name; may be repeated")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the tables into this Markdown page")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds for all of it")
    chosen = parser.parse_args()
    os.environ["TRITON_INTERPRET"] = "1" if chosen.dry else "0"  # read when triton is first imported

    import torch

    from tests.gpu import report, scale
    from tests.gpu.parts import parts
    from tests.gpu.sections import run_all

    if not chosen.dry and torch.version.cuda is None:
        parser.error("this torch was built without CUDA; --dry works anywhere")
    if chosen.dry:
        from tests.engine.kernels.interpreter import mend_interpreter

        mend_interpreter()
    sections = [one for one in parts(is_dry=chosen.dry) if not chosen.only or one.name in chosen.only]
    if not sections:
        parser.error("no section is called so; there are " + ", ".join(p.name for p in parts(is_dry=False)))
    abreast = min(len(sections), os.cpu_count() or 1)
    outcomes = run_all(sections, scale.dry() if chosen.dry else scale.full(), chosen.limit, abreast)
    machine = "a dry run on a CPU" if chosen.dry else report.machine()
    told = report.section(outcomes, machine, ROOT)
    print(told)
    if chosen.write is not None:
        report.write(chosen.write, told, on_gpu=not chosen.dry)
    return int(any(outcome.found.failures for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
