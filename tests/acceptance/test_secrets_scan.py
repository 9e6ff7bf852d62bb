"""Secrets that are known beforehand go through every route, in every place, and are then searched for in all
that the platform leaves behind; with S3 as the store, and with PostgreSQL and Redis away for a while."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path

from tests.acceptance.conftest import Record
from tests.rig.planted import LONG_FORM_ONLY, plant, send_everywhere
from tests.rig.rig import Rig, Shape, running_rig
from tests.rig.search import (
    Answers,
    Secrets,
    found_in,
    in_answers,
    in_command_lines,
    in_dump,
    in_files,
    in_redis,
    in_tables,
    superuser_url,
)
from tests.s3_server import BUCKET, RunningS3


def test_secrets_scan(demo_model_dir: Path, tmp_path: Path, record: Record) -> None:
    (tmp_path / "s3").mkdir()
    s3 = RunningS3(tmp_path / "s3")
    s3.start()
    try:
        settings = {
            "STORE_URL": f"s3://{BUCKET}/some/prefix?endpoint={s3.server.endpoint}",
            **{name: secrets.token_urlsafe(32) for name in LONG_FORM_ONLY},
        }
        outer = {"AWS_ACCESS_KEY_ID": s3.server.access_key, "AWS_SECRET_ACCESS_KEY": s3.server.secret_key}
        shape = Shape(settings=settings, environment={**outer, "AWS_EC2_METADATA_DISABLED": "true"})
        with running_rig(demo_model_dir, shape) as rig:
            _scan(rig, record)
    finally:
        s3.kill()


def _scan(rig: Rig, record: Record) -> None:
    with rig.admin() as admin:
        planted = plant(rig, admin)
    hidden: Secrets = {**planted.secrets, "S3 secret": rig.shape.environment["AWS_SECRET_ACCESS_KEY"]}
    answers = send_everywhere(rig, planted, everybody=True)
    _with_servers_away(rig, planted.people["tenant"], answers)
    with rig.admin() as admin:
        told = admin.get(
            "/metrics", headers={"authorization": f"Bearer {rig.shape.settings['METRICS_TOKEN']}"}
        )
    assert told.status_code == 200
    files, in_home = in_files(rig.home.root, hidden)
    url = superuser_url(rig.home.root, rig.database.owner)
    tables, in_database = asyncio.run(in_tables(url, hidden))
    dumped, in_a_dump = in_dump(url, hidden)
    keys, in_memory = in_redis(rig.redis_url, hidden)
    shown = in_command_lines([child.pid for child in rig.children.values()], hidden)
    errors, metrics = in_answers(answers, hidden), found_in(told.content, hidden)
    found = [*in_home, *in_database, *in_a_dump, *in_memory, *shown, *errors, *metrics]
    record.write(
        "Every operation of the OpenAPI document as nobody, tenant, revoked and unknown key, operator by "
        "token "
        "and by session, and with credentials in the wrong header; each as it is meant, and with "
        "credentials in "
        "path, query and body; then requests with PostgreSQL and with Redis away. Then the platform's folder "
        "(logs, journals, database files, append-only file), every row of every table, a dump, every key in "
        "Redis, "
        "metrics, command lines and the bodies of errors are searched for the secrets: raw, quoted, in "
        "hex and "
        f"in base64 of any alignment. Secrets: {', '.join(sorted(hidden))}; and any presigned URL.",
        {
            "requests": answers.number,
            "by status": dict(sorted(answers.statuses.items())),
            "files, tables, bytes of a dump, keys in Redis": f"{files}, {tables}, {dumped}, {keys}",
            "errors read": len(answers.errors),
            "secrets found": len(found),
        },
        "\n".join(f"- {line}" for line in found[:20]),
    )
    assert found == []
    assert 500 not in answers.statuses
    assert {200, 201, 401, 404, 503} <= set(answers.statuses)


def _with_servers_away(rig: Rig, headers: dict[str, str], answers: Answers) -> None:
    """Errors of connections name their addresses: passwords stand in those."""
    assert rig.postgres is not None
    assert rig.redis is not None
    for server in (rig.postgres, rig.redis):
        server.stop()
        for _ in range(3):
            answers.ask(rig.base_url, headers)
        server.restart()
