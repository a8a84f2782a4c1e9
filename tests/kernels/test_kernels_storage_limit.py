"""The store is kept within a size: the least recently used sets go, what a running command may use stays."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from wheelfactory.core.files import scratch_dir
from wheelfactory.kernels.compiler.store import SetKey, Store, lock_sets
from wheelfactory.kernels.storage import keep_used_sets, limit_store

GB = 1000**3
DAY_NS = 86_400 * GB

MakeSet = Callable[..., Path]


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    return tmp_path / "kernels"


@pytest.fixture
def make_set(kernels: Path) -> MakeSet:
    """Makes a set of two objects with 1 GB together, last used that many days after the first of January 1970."""

    def make(name: str, *, day: int) -> Path:
        store = Store(kernels, SetKey({"name": name}, ("one", "two")))
        store.create()
        for source in store.key.sources:
            with store.object_path(source).open("wb") as file:
                file.truncate(GB // 2)
        os.utime(store.folder / "set.json", ns=(0, day * DAY_NS))
        return store.folder

    return make


def content(kernels: Path) -> set[Path]:
    """The sets, and whatever is left over, without the lock."""
    return {*kernels.iterdir()} - {kernels / "lock"}


def use(folder: Path) -> None:
    """Use a set, as a compile and an unpacked archive do."""
    key = SetKey.from_bytes((folder / "set.json").read_bytes())
    Store(folder.parent, key).create()


def test_the_least_recently_used_sets_are_removed_until_the_others_fit_and_the_log_names_them(
    kernels: Path, make_set: MakeSet, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    newest, oldest, middle = (make_set(name, day=day) for name, day in (("n", 9), ("o", 31), ("m", 5)))
    use(middle)
    use(newest)

    limit_store(kernels, 3 * GB)
    assert (content(kernels), caplog.messages) == ({newest, middle, oldest}, [])
    limit_store(kernels, 2 * GB)
    assert content(kernels) == {newest, middle}
    assert caplog.messages == [f"removed kernels last used on 1970-02-01: {oldest}, 1.00 GB freed"]

    limit_store(kernels, 2 * GB - 1)
    assert content(kernels) == {newest}
    assert not oldest.exists()


def test_sets_that_a_command_uses_stay_and_the_log_says_that_they_are_too_large(
    kernels: Path, make_set: MakeSet, caplog: pytest.LogCaptureFixture
) -> None:
    used, unused = make_set("a", day=1), make_set("b", day=2)

    with caplog.at_level(logging.INFO), keep_used_sets(kernels):
        use(used)
        limit_store(kernels, GB // 2)
        assert used.is_dir()
        assert not unused.exists()

    assert caplog.messages[1:] == ["the kernels in use have 1.00 GB, more than the limit of 0.50 GB: keeping them"]


def wait_until_past(folder: Path) -> None:
    """Wait for the next tick of the file system's clock, which has some milliseconds, after the last use of a set."""
    clock, used = folder.parent / "clock", (folder / "set.json").stat().st_mtime_ns
    clock.touch()
    while clock.stat().st_mtime_ns <= used:
        clock.touch()
    clock.unlink()


USE = """
import sys
from pathlib import Path
from wheelfactory.kernels.compiler.store import SetKey, Store, lock_sets
from wheelfactory.kernels.storage import keep_used_sets
folder = Path(sys.argv[1])
with keep_used_sets(folder.parent):
    Store(folder.parent, SetKey.from_bytes((folder / "set.json").read_bytes())).create()
    print("used", flush=True)
    sys.stdin.read()
"""

LOCK = """
import fcntl, sys
with open(sys.argv[1] + "/lock1-2", "w") as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    print("locked", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(params=[USE, LOCK], ids=["a command that used it", "a compile that locked a shard of it"])
def user(request: pytest.FixtureRequest, make_set: MakeSet) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Another process that uses a set, and the set."""
    folder = make_set("used", day=1)
    command = [sys.executable, "-c", request.param, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline()
        yield process, folder
        process.kill()


def test_a_set_of_another_process_stays_until_that_ends(
    kernels: Path, make_set: MakeSet, user: tuple[subprocess.Popen[str], Path]
) -> None:
    process, folder = user
    other = make_set("other", day=9)

    limit_store(kernels, 0)
    assert folder.is_dir()
    assert not other.exists()

    process.kill()
    process.wait()
    wait_until_past(folder)
    limit_store(kernels, 0)
    assert not folder.exists()


def test_a_store_can_be_in_a_scratch_folder(tmp_path: Path) -> None:
    """Jobs merge archives in one, which is locked by the same process."""
    with scratch_dir(tmp_path) as kernels:
        store = Store(kernels, SetKey({}, ("one",)))
        store.create()
        assert store.folder.is_dir()


def test_a_set_that_is_being_removed_is_created_again(kernels: Path, make_set: MakeSet) -> None:
    """A command that begins to use a set waits until other sets and this one are chosen and moved."""
    folder = make_set("a", day=1)
    store = Store(kernels, SetKey.from_bytes((folder / "set.json").read_bytes()))
    user = threading.Thread(target=store.create)
    with lock_sets(kernels):
        user.start()
        user.join(timeout=0.3)
        assert user.is_alive(), "waits"
        folder.rename(kernels / "removed")
    user.join()

    assert {path.name for path in folder.iterdir()} == {"objects", "set.json"}
    assert [*folder.glob("objects/*")] == []


KILLED_WHILE_REMOVING = """
import os, shutil, signal, sys
from pathlib import Path
from wheelfactory.kernels.storage import limit_store
shutil.rmtree = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
limit_store(Path(sys.argv[1]), 0)
"""


def test_an_interrupted_removal_leaves_no_part_of_a_set_and_is_finished_later(kernels: Path, make_set: MakeSet) -> None:
    folder = make_set("a", day=1)
    done = subprocess.run([sys.executable, "-c", KILLED_WHILE_REMOVING, str(kernels)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert not folder.exists()
    assert [*kernels.rglob("*.o")], "moved away and not deleted yet"

    limit_store(kernels, GB)

    assert content(kernels) == set()
