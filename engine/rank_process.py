"""One rank of a tensor-parallel replica but the first, which is the core (`engine/model/parallel.py`).

Started by the core with its settings, its rank, the core's process id and where to meet; leaves when its
standard input ends.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from pathlib import Path

from engine.config import CoreSettings
from engine.model.opening import begin, open_group, open_part
from engine.model.parallel import await_all, follow
from engine.process_life import end_with, own_output
from engine.server.logs import set_up_logs

log = logging.getLogger("engine.rank")


def main(arguments: list[str]) -> int:
    set_up_logs()
    output = own_output()
    settings, rank = CoreSettings.model_validate_json(arguments[0]), int(arguments[1])
    end_with(int(arguments[2]))
    group = open_group(settings, rank, Path(arguments[3]))
    with contextlib.closing(group):
        try:
            part = open_part(settings, group)
            if not await_all(output, sys.stdin.buffer):
                return 0
            group.connect()
            begin(part)
            follow(part, group, sys.stdin.buffer)
        except Exception:
            log.exception("rank %d failed", rank)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
