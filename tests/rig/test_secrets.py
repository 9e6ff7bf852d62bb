"""The short form of tests/acceptance/test_secrets_scan.py; and the search itself, on what holds secrets."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.rig.planted import (
    forms,
    found_in,
    in_answers,
    in_command_lines,
    in_files,
    in_redis,
    in_tables,
    plant,
    send_everywhere,
    superuser_url,
)
from tests.rig.rig import Rig


def test_no_secret_is_left_anywhere(rig: Rig) -> None:
    with rig.admin() as admin:
        planted = plant(rig, admin)
    answers = send_everywhere(rig, planted, everybody=False)
    with rig.admin() as admin:
        metrics = admin.get("/metrics").content
    files, in_home = in_files(rig.home.root, planted.secrets)
    url = superuser_url(rig.home.root, rig.database.owner)
    tables, in_database = asyncio.run(in_tables(url, planted.secrets))
    keys, in_memory = in_redis(rig.redis_url, planted.secrets)
    pids = [child.pid for child in rig.children.values()]
    assert in_home == in_database == in_memory == []
    assert in_command_lines(pids, planted.secrets) == []
    assert in_answers(answers, planted.secrets) == []
    assert found_in(metrics, planted.secrets) == []
    assert min(files, tables, keys) > 0
    assert {200, 401, 404} <= set(answers.statuses)
    assert 500 not in answers.statuses


def test_the_search_finds_what_is_there(rig: Rig, tmp_path: Path) -> None:
    secrets = {"a": "one of the secrets/ä", "b": "another secret"}
    for form in forms(secrets["a"]):
        assert found_in(b"..." + form + b"...", secrets) == ["a"], form
    (tmp_path / "some.log").write_bytes(b"password=another secret")
    (tmp_path / "secrets.json").write_bytes(b"another secret")
    (tmp_path / "secrets.json").chmod(0o644)
    assert in_files(tmp_path, secrets) == (2, ["secrets.json: b", "some.log: b"])
    (tmp_path / "secrets.json").chmod(0o600)
    assert in_files(tmp_path, secrets) == (2, ["some.log: b"])
    url = superuser_url(rig.home.root, rig.database.owner)
    _, in_database = asyncio.run(in_tables(url, {"name": rig.base_name}))
    assert in_database
    _, in_memory = in_redis(rig.redis_url, {"epoch": "epoch"})
    assert in_memory
