import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.catalog.spool import Spool


def test_a_directory_is_gone_after_success_and_failure(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "uploads")
    with spool.directory() as directory:
        (directory / "x").write_bytes(b"1")
    with pytest.raises(FileExistsError), spool.directory() as directory:
        directory.mkdir()
    assert list(spool.root.iterdir()) == []


def test_a_sweep_takes_what_a_killed_worker_left_and_nothing_in_use(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    hold = (
        "import sys, time; from pathlib import Path; from gateway.catalog.spool import Spool\n"
        "with Spool(Path(sys.argv[1])).directory() as d:\n"
        "    (d / 'x').write_bytes(b'1'); print('ready', flush=True); time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", hold, str(tmp_path)], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        with spool.directory() as mine:
            assert spool.sweep() == []
            os.kill(child.pid, signal.SIGKILL)
            child.wait()
            assert len(spool.sweep()) == 1
            assert list(tmp_path.iterdir()) == [mine]
