"""An export's two files, written row by row. The same rows give the same bytes.

CSV: RFC 4180 with LF, UTF-8, fixed order of columns, null is empty, numbers as plain decimals, moments in UTC
with `Z`. A text that a spreadsheet would take for a formula gets an apostrophe before it; the column decides
that, never the content of a number.
"""

from __future__ import annotations

import csv
import hashlib
import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from gateway.billing.exports.focus import COLUMNS, Kind, Row, Value

CSV: Final = "charges.csv"
PARQUET: Final = "charges.parquet"
MANIFEST: Final = "manifest.json"
ROW_GROUP: Final = 10_000

_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True, slots=True)
class Written:
    """A file that is complete."""

    name: str
    num_bytes: int
    sha256: str


class ChargeFiles:
    """Both files in a folder, while the block runs; `close` gives them. Blocking: for a thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._csv = (folder / CSV).open("w", encoding="utf-8", newline="")
        self._lines = csv.writer(self._csv, lineterminator="\n")
        self._lines.writerow(COLUMNS)
        self._arrow: Any = importlib.import_module("pyarrow")  # 60 MB that only control's exports need
        self._schema = _schema(self._arrow)
        parquet: Any = importlib.import_module("pyarrow.parquet")
        self._parquet = parquet.ParquetWriter(str(folder / PARQUET), self._schema, compression="zstd")
        self._waiting: list[Row] = []
        self.num_rows = 0

    def __enter__(self) -> ChargeFiles:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._csv.close()
        self._parquet.close()

    def add(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self._lines.writerow([csv_text(row[name], kind) for name, kind in COLUMNS.items()])
        self.num_rows += len(rows)
        self._waiting += rows
        while len(self._waiting) >= ROW_GROUP:  # row groups of one size, however the rows came
            self._write_group(self._waiting[:ROW_GROUP])
            del self._waiting[:ROW_GROUP]

    def finish(self) -> list[Written]:
        if self._waiting or not self.num_rows:
            self._write_group(self._waiting)
            self._waiting = []
        self._csv.close()
        self._parquet.close()
        return [written(self._folder / name) for name in (CSV, PARQUET)]

    def _write_group(self, rows: Sequence[Row]) -> None:
        columns = {name: [_arrow_value(row[name], kind) for row in rows] for name, kind in COLUMNS.items()}
        self._parquet.write_table(self._arrow.Table.from_pydict(columns, schema=self._schema))


def written(path: Path) -> Written:
    with path.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    return Written(path.name, path.stat().st_size, digest)


def csv_text(value: Value, kind: Kind) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
    text = str(value)
    return f"'{text}" if kind is Kind.TEXT and text.startswith(_FORMULA) else text


def _schema(arrow: Any) -> Any:
    types: Mapping[Kind, Any] = {
        Kind.TEXT: arrow.string(),
        Kind.JSON: arrow.string(),
        Kind.MOMENT: arrow.timestamp("ms", tz="UTC"),
        Kind.WHOLE: arrow.int64(),
        Kind.DECIMAL: arrow.decimal128(38, 12),
    }
    return arrow.schema([(name, types[kind]) for name, kind in COLUMNS.items()])


def _arrow_value(value: Value, kind: Kind) -> object:
    if kind is Kind.DECIMAL and isinstance(value, str):
        return Decimal(value)
    return value
