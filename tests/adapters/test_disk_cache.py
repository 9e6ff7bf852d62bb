from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from adapters.digest import artefact_id, content_digest
from adapters.disk_cache import CacheInUse, DiskCache, NoRoom, NotCached
from adapters.packed import pack, verify
from adapters.store import Corrupt, DiskFull, InvalidPath, NotFound, Unavailable, artefact_path
from adapters.store_folder import FolderStore
from tests.adapters.uploads import TINY, upload

OWNER = "acme"


class CountingStore(FolderStore):
    """The folder store, with the weather of a network: slow, cut, corrupted, or out of disk, as told."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.fetches: list[str] = []
        self.delay_s = 0.0
        self.damage = 0  # the next so many fetches arrive with a changed byte
        self.failures: list[Exception] = []

    def fetch_file(self, path: str, target: Path, *, durable: bool = True) -> None:
        self.fetches.append(path)
        time.sleep(self.delay_s)
        if self.failures:
            target.write_bytes(b"half")
            raise self.failures.pop(0)
        super().fetch_file(path, target, durable=durable)
        if self.damage:
            self.damage -= 1
            whole = bytearray(target.read_bytes())
            whole[-1] ^= 1
            target.write_bytes(whole)


@pytest.fixture
def store(tmp_path: Path) -> CountingStore:
    return CountingStore(tmp_path / "store")


@pytest.fixture
def artefacts(store: CountingStore, tmp_path: Path) -> list[str]:
    """Five adapters in the store, all of one size."""
    made = []
    for seed in range(5):
        given = upload(seed=seed)
        folder = tmp_path / f"upload{seed}"
        manifest = given.manifest(folder)
        weights = folder / "adapter_model.safetensors"
        artefact = artefact_id(OWNER, content_digest(manifest, weights, TINY.base_id))
        info = pack(manifest, weights, folder / "x.motet", artefact=artefact, base_id=TINY.base_id)
        store.put_file(info.path, artefact_path(OWNER, artefact))
        made.append(artefact)
    return made


@pytest.fixture
def size(store: CountingStore, artefacts: list[str]) -> int:
    return store.size(artefact_path(OWNER, artefacts[0]))


@pytest.fixture
def cache(tmp_path: Path, store: CountingStore, size: int) -> Iterator[DiskCache]:
    """Room for three."""
    cache = DiskCache(tmp_path / "cache", 3 * size, store)
    yield cache
    state = cache.state()
    on_disk = sum(file.stat().st_size for file in (tmp_path / "cache").glob("*.motet"))
    assert state.num_leases == 0
    assert state.used_bytes == on_disk <= state.budget_bytes
    assert list((tmp_path / "cache").glob("*.tmp")) == []
    cache.close()


def test_the_first_lease_fetches_the_next_does_not(
    cache: DiskCache, store: CountingStore, artefacts: list[str]
) -> None:
    for _ in range(2):
        with cache.lease(OWNER, artefacts[0]) as path:
            assert verify(path).artefact == artefacts[0]
    assert len(store.fetches) == 1
    assert (cache.state().hits, cache.state().misses) == (1, 1)


def test_the_least_recently_used_goes_first(cache: DiskCache, artefacts: list[str]) -> None:
    for artefact in [*artefacts[:3], artefacts[0], artefacts[3]]:
        with cache.lease(OWNER, artefact):
            pass
    assert [cache.contains(OWNER, artefact) for artefact in artefacts] == [True, False, True, True, False]
    assert cache.state().evictions == 1


def test_a_leased_file_stays(cache: DiskCache, artefacts: list[str]) -> None:
    with cache.lease(OWNER, artefacts[0]) as path:
        for artefact in artefacts[1:]:
            with cache.lease(OWNER, artefact):
                pass
        assert path.exists()
        assert cache.contains(OWNER, artefacts[0])


def test_no_room_while_everything_is_leased(cache: DiskCache, artefacts: list[str]) -> None:
    with ExitStack() as leases:
        for artefact in artefacts[:3]:
            leases.enter_context(cache.lease(OWNER, artefact))
        with pytest.raises(NoRoom), cache.lease(OWNER, artefacts[3]):
            pass
    with cache.lease(OWNER, artefacts[3]) as path:
        assert path.exists()


def test_larger_than_the_budget(
    tmp_path: Path, store: CountingStore, artefacts: list[str], size: int
) -> None:
    cache = DiskCache(tmp_path / "small", size - 1, store)
    with pytest.raises(NoRoom), cache.lease(OWNER, artefacts[0]):
        pass
    assert store.fetches == []
    cache.close()


def test_what_can_not_fit_drives_out_nothing(
    cache: DiskCache, store: CountingStore, artefacts: list[str], size: int, tmp_path: Path
) -> None:
    for artefact in artefacts[:3]:
        with cache.lease(OWNER, artefact):
            pass
    (tmp_path / "huge").write_bytes(bytes(3 * size + 1))
    (tmp_path / "large").write_bytes(bytes(3 * size))
    store.put_file(tmp_path / "huge", artefact_path(OWNER, "e" * 64))
    store.put_file(tmp_path / "large", artefact_path(OWNER, "f" * 64))
    with pytest.raises(NoRoom), cache.lease(OWNER, "e" * 64):
        pass
    with cache.lease(OWNER, artefacts[0]), pytest.raises(NoRoom), cache.lease(OWNER, "f" * 64):
        pass
    assert all(cache.contains(OWNER, artefact) for artefact in artefacts[:3])


def test_who_asks_what_is_here_waits_for_nobody(cache: DiskCache, artefacts: list[str]) -> None:
    """The thread that asks computes everybody's tokens; the one that holds the lock may be deleting files."""
    with cache.lease(OWNER, artefacts[0]):
        pass
    answers: list[bool] = []
    asking = threading.Thread(target=lambda: answers.append(cache.contains(OWNER, artefacts[0])))
    with cache._lock:
        asking.start()
        asking.join(10)
        assert answers == [True]
    asking.join()


def test_one_download_for_a_crowd(cache: DiskCache, store: CountingStore, artefacts: list[str]) -> None:
    store.delay_s = 0.1
    inside = threading.Barrier(8)
    found: list[bool] = []

    def run() -> None:
        with cache.lease(OWNER, artefacts[0]) as path:
            inside.wait(10)  # all hold it at once
            found.append(path.exists())

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 8
    assert len(store.fetches) == 1


def test_a_failure_is_told_to_all_who_waited_and_not_remembered(
    cache: DiskCache, store: CountingStore, artefacts: list[str]
) -> None:
    store.delay_s = 0.2
    store.failures = [Unavailable("the store sleeps")]
    failed: list[bool] = []

    def run() -> None:
        try:
            with cache.lease(OWNER, artefacts[0]):
                failed.append(False)
        except Unavailable:
            failed.append(True)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == [True] * 4
    assert len(store.fetches) == 1
    with cache.lease(OWNER, artefacts[0]) as path:
        assert path.exists()


def test_what_is_missing_now_may_come(cache: DiskCache, store: CountingStore, tmp_path: Path) -> None:
    given = upload(seed=9)
    manifest = given.manifest(tmp_path / "late")
    weights = tmp_path / "late" / "adapter_model.safetensors"
    artefact = artefact_id(OWNER, content_digest(manifest, weights, TINY.base_id))
    with pytest.raises(NotFound), cache.lease(OWNER, artefact):
        pass
    info = pack(manifest, weights, tmp_path / "late.motet", artefact=artefact, base_id=TINY.base_id)
    store.put_file(info.path, artefact_path(OWNER, artefact))
    with cache.lease(OWNER, artefact) as path:
        assert path.exists()


def test_bytes_that_broke_on_the_way_are_fetched_again(
    cache: DiskCache, store: CountingStore, artefacts: list[str]
) -> None:
    store.damage = 1
    with cache.lease(OWNER, artefacts[0]) as path:
        assert verify(path).artefact == artefacts[0]
    assert len(store.fetches) == 2


def test_what_is_corrupt_in_the_store_is_never_leased(
    cache: DiskCache, store: CountingStore, artefacts: list[str], tmp_path: Path
) -> None:
    store.damage = 2
    with pytest.raises(Corrupt), cache.lease(OWNER, artefacts[0]):
        pass
    with cache.lease(OWNER, artefacts[1]) as path:
        store.put_file(path, artefact_path(OWNER, artefacts[2]))  # another's bytes under its path
    with pytest.raises(Corrupt, match="holds artefact"), cache.lease(OWNER, artefacts[2]):
        pass


def test_a_full_disk_frees_what_it_can_and_tries_once_more(
    cache: DiskCache, store: CountingStore, artefacts: list[str]
) -> None:
    for artefact in artefacts[:2]:
        with cache.lease(OWNER, artefact):
            pass
    store.failures = [DiskFull("no room")]
    with cache.lease(OWNER, artefacts[2]) as path:
        assert path.exists()
    assert cache.state().num_files == 1
    store.failures = [DiskFull("no room"), DiskFull("no room")]
    with pytest.raises(DiskFull), cache.lease(OWNER, artefacts[3]):
        pass


def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    """/dev/full answers every write with ENOSPC."""
    from adapters.local_files import translated

    with pytest.raises(DiskFull), translated("/dev/full"), open("/dev/full", "wb", buffering=0) as full:
        full.write(b"x")
    with pytest.raises(DiskFull), translated("it"):
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))


def test_a_restart_keeps_files_and_clears_leftovers(
    tmp_path: Path, store: CountingStore, artefacts: list[str], size: int
) -> None:
    first = DiskCache(tmp_path / "kept", 5 * size, store)
    for artefact in artefacts[:3]:
        with first.lease(OWNER, artefact):
            pass
    first.close()
    (tmp_path / "kept" / f"{OWNER}.{artefacts[4]}.tmp").write_bytes(b"half")
    (tmp_path / "kept" / f".{OWNER}.x.1.2.tmp").write_bytes(b"half")
    damaged = tmp_path / "kept" / f"{OWNER}.{artefacts[1]}.motet"
    damaged.write_bytes(damaged.read_bytes()[:-1])

    second = DiskCache(tmp_path / "kept", 5 * size, store)
    assert list((tmp_path / "kept").glob("*.tmp")) + list((tmp_path / "kept").glob(".*.tmp")) == []
    fetched = len(store.fetches)
    with second.lease(OWNER, artefacts[0]) as path:
        assert verify(path).artefact == artefacts[0]
    assert len(store.fetches) == fetched
    with second.lease(OWNER, artefacts[1]) as path:  # cut while nobody looked: fetched again
        assert verify(path).artefact == artefacts[1]
    assert len(store.fetches) == fetched + 1
    second.close()


def test_a_lease_that_must_not_fetch_asks_the_store_for_nothing(
    tmp_path: Path, store: CountingStore, artefacts: list[str], size: int
) -> None:
    cache = DiskCache(tmp_path / "near", 3 * size, store)
    with pytest.raises(NotCached), cache.lease(OWNER, artefacts[0], fetch=False):
        pass
    assert store.fetches == []
    with cache.lease(OWNER, artefacts[0]) as path:
        pass
    with cache.lease(OWNER, artefacts[0], fetch=False) as path:
        assert cache.state().num_leases == 1
    cache.close()
    path.write_bytes(path.read_bytes()[:-1])
    cache = DiskCache(tmp_path / "near", 3 * size, store)
    with pytest.raises(NotCached), cache.lease(OWNER, artefacts[0], fetch=False):
        pass
    assert (len(store.fetches), cache.state().num_files, cache.state().num_leases) == (1, 0, 0)
    cache.close()


def test_a_smaller_budget_at_restart_is_met_at_once(
    tmp_path: Path, store: CountingStore, artefacts: list[str], size: int
) -> None:
    first = DiskCache(tmp_path / "kept", 5 * size, store)
    for artefact in artefacts:
        with first.lease(OWNER, artefact):
            pass
    first.close()
    second = DiskCache(tmp_path / "kept", 2 * size, store)
    assert second.state().num_files == 2
    assert len(list((tmp_path / "kept").glob("*.motet"))) == 2
    second.close()


def test_forget(cache: DiskCache, artefacts: list[str]) -> None:
    assert cache.forget(OWNER, artefacts[0])
    with cache.lease(OWNER, artefacts[0]) as path:
        assert not cache.forget(OWNER, artefacts[0])
        assert path.exists()
    assert cache.forget(OWNER, artefacts[0])
    assert not path.exists()


def test_one_process_a_folder(cache: DiskCache, tmp_path: Path, store: CountingStore) -> None:
    with pytest.raises(CacheInUse):
        DiskCache(tmp_path / "cache", 10, store)


@pytest.mark.parametrize(
    ("owner", "artefact"), [("../x", "a" * 64), ("acme", "../../etc/passwd"), ("", "a" * 64)]
)
def test_ids_that_are_none(cache: DiskCache, owner: str, artefact: str) -> None:
    with pytest.raises(InvalidPath), cache.lease(owner, artefact):
        pass


def test_a_crowd_over_a_small_budget(cache: DiskCache, store: CountingStore, artefacts: list[str]) -> None:
    """Three at a time fit; twelve threads want five. Everyone gets the right file or an honest `NoRoom`."""
    store.delay_s = 0.002
    wrong: list[str] = []
    served = threading.Semaphore(0)

    def run(seed: int) -> None:
        for turn in range(20):
            artefact = artefacts[(seed * 7 + turn * 3) % 5]
            try:
                with cache.lease(OWNER, artefact) as path:
                    if verify(path).artefact != artefact:
                        wrong.append(artefact)
                    served.release()
            except NoRoom:
                time.sleep(0.001)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert served.acquire(blocking=False)
