"""Files are written completely or not at all, also after a kill; a folder has one lock holder at a time."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from wheelfactory.core.errors import FactoryError, InputError
from wheelfactory.core.files import (
    atomic_path,
    content_key,
    file_sha256,
    is_locked,
    lock_folder,
    read_file,
    remove_scratch,
    running_since,
    scratch_dir,
    write_atomic,
    write_launcher,
)


class StopError(Exception):
    """Ends a block that was writing."""


def test_a_launcher_runs_its_command_with_the_arguments_that_it_gets(tmp_path: Path) -> None:
    write_launcher(tmp_path / "say", ["/bin/echo", "a b", "$HOME"])
    assert subprocess.check_output([tmp_path / "say", "c  d"], text=True) == "a b $HOME c  d\n"


def test_a_file_that_cannot_be_read_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_bytes(b"{}")
    assert read_file(tmp_path / "plan.json", InputError("cannot read the plan", "it", "write it")) == b"{}"
    with pytest.raises(InputError, match=r"^cannot read the plan: it \(Is a directory\)$") as refused:
        read_file(tmp_path, InputError("cannot read the plan", "it", "write it"))
    assert refused.value.hint == "write it"


def test_a_full_disk_is_reported_with_the_file_that_was_to_be_written(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left") as full, atomic_path(tmp_path / "copy"):
        raise OSError(errno.ENOSPC, "No space left on device", "original")
    assert full.value.filename == str(tmp_path / "copy")


def everything(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_a_file_appears_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "new/folder/file.txt"
    with atomic_path(path) as written:
        written.write_text("whole")
        assert not path.exists()
        assert written.name == path.name, "programs read a wheel's tags off its name"
    assert path.read_text() == "whole"
    assert everything(tmp_path) == ["new", "new/folder", "new/folder/file.txt"]


@pytest.mark.parametrize("before", [None, "old"], ids=["no file", "a file"])
def test_an_error_keeps_the_old_file_and_leaves_no_scratch(tmp_path: Path, before: str | None) -> None:
    path = tmp_path / "file.txt"
    if before:
        path.write_text(before)
    with pytest.raises(StopError), atomic_path(path) as written:
        written.write_text("half of")
        raise StopError
    assert everything(tmp_path) == (["file.txt"] if before else [])
    assert not before or path.read_text() == before


def test_other_users_can_read_a_written_file(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        write_atomic(tmp_path / "file", b"")
    finally:
        os.umask(before)
    assert stat.filemode((tmp_path / "file").stat().st_mode) == "-rw-r--r--"


def run_until_killed(code: str, *arguments: Path) -> None:
    """Run Python code that kills its process, like the kernel when memory runs out."""
    done = subprocess.run([sys.executable, "-c", code, *arguments], check=False)
    assert done.returncode == -signal.SIGKILL


KILLED_WHILE_WRITING = """
import os, signal, sys
from pathlib import Path
from wheelfactory.core.files import atomic_path
with atomic_path(Path(sys.argv[1])) as written:
    written.write_text("half of")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_kill_keeps_the_old_file_and_its_scratch_can_be_removed(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    path.write_text("old")
    run_until_killed(KILLED_WHILE_WRITING, path)
    assert path.read_text() == "old"
    assert len(everything(tmp_path)) > 1
    remove_scratch(tmp_path)
    assert everything(tmp_path) == ["file.txt"]


def test_only_scratch_folders_are_removed_at_every_depth(tmp_path: Path) -> None:
    for name in (".scratch-a/.scratch-b/c", "wheels/.scratch-d", "wheels/kept", "scratch-e"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / ".scratch-a/file").touch()
    remove_scratch(tmp_path)
    assert everything(tmp_path) == ["scratch-e", "wheels", "wheels/kept"]


def test_the_same_bytes_are_not_written_again(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomic(path, b"same")
    os.utime(path, (1, 1))
    write_atomic(path, b"same")
    assert path.stat().st_mtime == 1
    write_atomic(path, b"other")
    assert path.read_bytes() == b"other"
    assert path.stat().st_mtime > 1


HOLD = """
import sys, time
from pathlib import Path
from wheelfactory.core.files import lock_folder
with lock_folder(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock on ``tmp_path/folder``."""
    command = [sys.executable, "-c", HOLD, str(tmp_path / "folder")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_locked_folder_cannot_be_locked_again(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    with pytest.raises(FactoryError, match="in use by another run") as caught, lock_folder(tmp_path / "folder"):
        pytest.fail("two hold one folder")
    assert caught.value.which == str(tmp_path / "folder")
    assert caught.value.hint


def test_an_error_of_the_block_is_passed_on_and_releases_the_lock(tmp_path: Path) -> None:
    with pytest.raises(BlockingIOError, match="a full pipe"), lock_folder(tmp_path):
        raise BlockingIOError("a full pipe")
    for _ in range(2):
        with lock_folder(tmp_path):
            assert is_locked(tmp_path)
    assert not is_locked(tmp_path)


def test_the_lock_of_another_process_can_be_waited_for(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    def lock() -> None:
        with lock_folder(tmp_path / "folder", wait=True):
            (tmp_path / "folder/locked").touch()

    waiting = threading.Thread(target=lock)
    waiting.start()
    waiting.join(timeout=0.3)
    assert (waiting.is_alive(), is_locked(tmp_path / "folder"), everything(tmp_path)) == (True, True, ["folder"])
    holder.kill()
    waiting.join()
    assert everything(tmp_path) == ["folder", "folder/locked"]
    assert not is_locked(tmp_path / "folder")


def test_running_processes_have_run_since_the_oldest_scratch_folder_of_one(tmp_path: Path) -> None:
    (tmp_path / ".scratch-of-a-killed-run").mkdir()
    os.utime(tmp_path / ".scratch-of-a-killed-run", ns=(0, 0))
    before = time.time_ns()
    assert running_since(tmp_path) >= before
    with scratch_dir(tmp_path) as one, scratch_dir(tmp_path) as two:
        os.utime(one, ns=(0, 2000))
        os.utime(two, ns=(0, 1000))
        assert running_since(tmp_path) == 1000


def test_a_scratch_folder_removed_before_its_lock_is_created_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Path] = []
    hold = fcntl.flock

    def late(descriptor: int, operation: int) -> None:
        made.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        if len(made) == 1:
            made[0].rmdir()
        hold(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    with scratch_dir(tmp_path) as folder:
        assert folder.is_dir()
        assert made == [made[0], folder]


def test_the_digest_covers_all_bytes_of_the_file(tmp_path: Path) -> None:
    for size in (0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1):
        data = os.urandom(size)
        (tmp_path / "file").write_bytes(data)
        assert file_sha256(tmp_path / "file") == hashlib.sha256(data).hexdigest()


def test_a_cache_key_depends_on_the_content_not_on_its_type() -> None:
    assert content_key("torch") == content_key(b"torch") == hashlib.sha256(b"torch").hexdigest()[:16]
