"""The object store as a folder: for one machine, or a shared file system."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from adapters.local_files import TEMPORARY_SUFFIX, replacing, translated
from adapters.store import Corrupt, NotFound, Unfinished, check_path


class FolderStore:
    """Objects are files below `root`, which is made when first written to."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()

    def put_file(self, source: Path, path: str) -> None:
        with replacing(self._file(path)) as temporary:
            shutil.copyfile(source, temporary)
            if temporary.stat().st_size != source.stat().st_size:
                raise Corrupt(f"{path}: the folder kept a part of it")

    def fetch_file(self, path: str, target: Path, *, durable: bool = True) -> None:
        source = self._file(path)
        if not source.is_file():
            raise NotFound(f"there is no {path}")
        with replacing(target, durable=durable) as temporary:
            shutil.copyfile(source, temporary)

    def size(self, path: str) -> int:
        with translated(path):
            return self._file(path).stat().st_size

    def exists(self, path: str) -> bool:
        with translated(path):
            return self._file(path).is_file()

    def age_s(self, path: str) -> float:
        with translated(path):
            return time.time() - self._file(path).stat().st_mtime

    def delete(self, path: str) -> None:
        file = self._file(path)
        with translated(path):
            file.unlink(missing_ok=True)
        self._drop_empty(file)

    def unfinished(self, older_than_s: float) -> Iterator[Unfinished]:
        with translated(str(self.root)), contextlib.suppress(FileNotFoundError):
            for file in self.root.rglob(f".*{TEMPORARY_SUFFIX}"):
                with contextlib.suppress(FileNotFoundError):  # it ended meanwhile
                    age_s = time.time() - file.stat().st_mtime
                    if age_s > older_than_s:
                        target = file.relative_to(self.root).parent / file.name[1:].rsplit(".", 3)[0]
                        yield Unfinished(target.as_posix(), file.name, age_s)

    def discard(self, put: Unfinished) -> None:
        file = self._file(put.path).with_name(put.token)
        if file.parent.is_dir() and _is_temporary(file):
            with translated(put.path):
                file.unlink(missing_ok=True)
            self._drop_empty(file)

    def list(self, prefix: str) -> Iterator[str]:
        start = self._file(prefix.rstrip("/")) if prefix else self.root
        with translated(prefix or str(self.root)), contextlib.suppress(FileNotFoundError):
            for file in start.rglob("*"):
                if file.is_file() and not _is_temporary(file):
                    yield file.relative_to(self.root).as_posix()

    def _drop_empty(self, file: Path) -> None:
        """The folders that it leaves empty."""
        for folder in file.parents:
            if folder == self.root:
                return
            try:
                folder.rmdir()
            except OSError:  # not empty, or gone already
                return

    def _file(self, path: str) -> Path:
        """No part of a checked path is `..`, and links that lead outside are not followed."""
        file = self.root / check_path(path)
        if not file.resolve().is_relative_to(self.root):
            raise NotFound(f"{path} leads out of the store")
        return file


def _is_temporary(file: Path) -> bool:
    return file.name.startswith(".") and file.name.endswith(TEMPORARY_SUFFIX)
