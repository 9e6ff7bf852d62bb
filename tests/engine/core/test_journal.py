"""The journal keeps what it was told: over restarts, torn ends, kills and rotation."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from engine.core.journal import ID_FILE, Journal, JournalError, JournalLine, segments
from engine.core.journal_reader import JournalReader
from engine.core.protocol import Outcome, Purpose, Tier


def line(n: int, request: str = "r") -> JournalLine:
    return JournalLine(
        n=n,
        request=request,
        attempt=1,
        tenant="t",
        key="k",
        artefact=None,
        owner=None,
        version="",
        purpose=Purpose.TENANT,
        outcome=Outcome.FINISHED,
        prompt=1,
        completion=2,
        cached=0,
        queue_ms=0.5,
        load_ms=0.0,
        ttft_ms=None,
        total_ms=3.25,
        tier=Tier.BASE,
        ended_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    )


def write(directory: Path, count: int, *, segment_bytes: int = 1 << 20) -> Journal:
    journal = Journal(directory, segment_bytes=segment_bytes)
    for _ in range(count):
        journal.append(line(journal.last_n + 1))
    return journal


def test_lines_are_readable_as_soon_as_they_are_appended(tmp_path: Path) -> None:
    journal = write(tmp_path, 3)
    page = JournalReader(tmp_path).read(0, 10)
    assert page.lines == [line(1), line(2), line(3)]
    assert (page.next, page.journal_id) == (3, journal.journal_id)
    journal.close()


def test_numbers_and_identity_go_on_over_restarts(tmp_path: Path) -> None:
    first = write(tmp_path, 3)
    first.close()
    second = write(tmp_path, 2)
    second.close()
    assert first.journal_id == second.journal_id
    assert [entry.n for entry in JournalReader(tmp_path).read(0, 10).lines] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("torn", [b'{"n":4,"request":"r', b"\0\0\0\0", b'{"n":9}\n', b"garbage\n", b"\n"])
def test_a_torn_end_is_cut_off_and_numbering_goes_on(tmp_path: Path, torn: bytes) -> None:
    write(tmp_path, 3).close()
    ((_, path),) = segments(tmp_path)
    with path.open("ab") as file:
        file.write(torn)
    journal = write(tmp_path, 1)
    assert journal.last_n == 4
    assert [entry.n for entry in JournalReader(tmp_path).read(0, 10).lines] == [1, 2, 3, 4]
    journal.close()


def test_a_line_cut_anywhere_loses_that_line_alone(tmp_path: Path) -> None:
    write(tmp_path, 3).close()
    ((_, path),) = segments(tmp_path)
    whole = path.read_bytes()
    start_of_third = whole[:-1].rindex(b"\n") + 1
    for cut in range(start_of_third, len(whole), 7):
        path.write_bytes(whole[:cut])
        journal = Journal(tmp_path)
        assert journal.last_n == 2
        journal.close()


def test_a_damaged_line_hides_none_of_those_after_it(tmp_path: Path) -> None:
    """Neither from the reader nor, at the next start, from the disk."""
    write(tmp_path, 5).close()
    ((_, path),) = segments(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], b"#" * 40 + b"\n", *lines[3:]]))
    assert [entry.n for entry in JournalReader(tmp_path).read(0, 10).lines] == [1, 2, 4, 5]
    journal = write(tmp_path, 1)
    assert [entry.n for entry in JournalReader(tmp_path).read(0, 10).lines] == [1, 2, 4, 5, 6]
    journal.close()


def test_what_was_read_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a power loss takes lines that were read, and their numbers are given to others."""
    synced: list[int] = []
    write(tmp_path, 3).close()
    ((_, path),) = segments(tmp_path)
    monkeypatch.setattr("os.fdatasync", lambda file: synced.append(os.fstat(file).st_ino))
    reader = JournalReader(tmp_path)
    assert len(reader.read(0, 10).lines) == 3
    assert synced == [path.stat().st_ino]
    assert reader.read(3, 10).lines == []
    assert len(synced) == 1, "not while there is nothing new"


def test_the_reader_leaves_an_unfinished_line_for_later(tmp_path: Path) -> None:
    write(tmp_path, 2).close()
    reader = JournalReader(tmp_path)
    ((_, path),) = segments(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    assert [entry.n for entry in reader.read(0, 10).lines] == [1]
    path.write_bytes(whole)
    assert [entry.n for entry in reader.read(1, 10).lines] == [2]


def test_segments_rotate_and_pages_run_over_them(tmp_path: Path) -> None:
    journal = write(tmp_path, 50, segment_bytes=2_000)
    assert len(segments(tmp_path)) > 5
    seen: list[int] = []
    reader, after = JournalReader(tmp_path), 0
    while (page := reader.read(after, 7)).lines:
        assert len(page.lines) <= 7
        seen.extend(entry.n for entry in page.lines)
        after = page.next
    assert seen == list(range(1, 51))
    for start in (0, 1, 23, 49, 50, 99):
        assert [e.n for e in JournalReader(tmp_path).read(start, 100).lines] == list(range(start + 1, 51))
    journal.close()


def test_a_restart_goes_on_with_the_last_segment(tmp_path: Path) -> None:
    write(tmp_path, 20, segment_bytes=2_000).close()
    write(tmp_path, 20, segment_bytes=2_000).close()
    assert [entry.n for entry in JournalReader(tmp_path).read(0, 100).lines] == list(range(1, 41))


def test_old_segments_go_only_when_enough_newer_lines_remain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.core.journal.KEEP_LINES", 20)
    journal = Journal(tmp_path, segment_bytes=2_000, keep_s=0.0)
    for _ in range(60):
        journal.append(line(journal.last_n + 1))
    kept = JournalReader(tmp_path).read(0, 100).lines
    assert kept[0].n > 1
    assert len(kept) >= 20
    assert [entry.n for entry in kept] == list(range(kept[0].n, 61))
    journal.close()


def test_young_segments_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.core.journal.KEEP_LINES", 1)
    journal = write(tmp_path, 60, segment_bytes=2_000)
    assert len(JournalReader(tmp_path).read(0, 100).lines) == 60
    journal.close()


def test_a_directory_belongs_to_one_engine(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    with pytest.raises(JournalError, match="another engine"):
        Journal(tmp_path)
    journal.close()
    Journal(tmp_path).close()


def test_a_journal_that_starts_afresh_has_another_id(tmp_path: Path) -> None:
    journal = write(tmp_path, 1)
    journal.close()
    for path in tmp_path.iterdir():
        path.unlink()
    other = Journal(tmp_path)
    assert other.journal_id != journal.journal_id
    assert other.last_n == 0
    other.close()


@pytest.mark.parametrize("found", [None, ""])
def test_lines_whose_id_was_lost_get_a_new_one(tmp_path: Path, found: str | None) -> None:
    """As after a power loss: the name of the file was on the disk before its contents."""
    journal = write(tmp_path, 3)
    journal.close()
    (tmp_path / ID_FILE).unlink()
    if found is not None:
        (tmp_path / ID_FILE).write_text(found)
    other = write(tmp_path, 1)
    assert other.journal_id not in {"", journal.journal_id}
    page = JournalReader(tmp_path).read(0, 10)
    assert (page.journal_id, [entry.n for entry in page.lines]) == (other.journal_id, [1, 2, 3, 4])
    other.close()


WRITER = """
import sys
from pathlib import Path
from engine.core.journal import Journal
from tests.engine.core.test_journal import line

journal = Journal(Path(sys.argv[1]), segment_bytes=20_000)
while True:
    journal.append(line(journal.last_n + 1))
    print(journal.last_n, flush=True)
"""


def test_a_killed_process_loses_no_line_that_it_acknowledged(tmp_path: Path) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )
    assert writer.stdout is not None
    for _ in range(500):
        writer.stdout.readline()
    writer.send_signal(signal.SIGKILL)
    acknowledged = [int(text) for text in writer.stdout.read().split(b"\n")[:-1]] or [500]
    writer.wait()
    writer.stdout.close()
    journal = Journal(tmp_path)
    assert journal.last_n >= acknowledged[-1]
    lines = JournalReader(tmp_path).read(0, 1_000_000).lines
    assert [entry.n for entry in lines] == list(range(1, journal.last_n + 1))
    journal.close()
