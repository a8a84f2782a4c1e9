"""A memory limit that the kernel enforces."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cgroups import MemoryLimit, find_missing_requirement, memory_limited

pytestmark = pytest.mark.skipif(find_missing_requirement() is not None, reason=find_missing_requirement() or "")


def allocate(mib: int) -> tuple[str, ...]:
    return (sys.executable, "-c", f"held = bytearray({mib} << 20); print(len(held) >> 20)")


def test_what_fits_runs() -> None:
    with memory_limited(128) as limit:
        done = subprocess.run(limit.command(*allocate(64)), capture_output=True, text=True, check=True)
        assert (done.stdout, limit.kills) == ("64\n", 0)
        assert 64 <= limit.peak_mib <= 128


def test_what_does_not_fit_is_killed_and_counted() -> None:
    with memory_limited(128) as limit:
        done = subprocess.run(limit.command(*allocate(256)), check=False)
        assert (done.returncode, limit.kills) == (-signal.SIGKILL, 1)


def test_the_limit_is_of_all_together() -> None:
    with memory_limited(128) as limit:
        holding = (sys.executable, "-c", "import sys; held = bytearray(80 << 20); sys.stdin.read()")
        with subprocess.Popen(limit.command(*holding), stdin=subprocess.PIPE):
            wait_for(limit, mib=80)
            subprocess.run(limit.command(*allocate(80)), check=False)
            assert limit.kills == 1


def test_page_cache_counts_but_is_given_back(tmp_path: Path) -> None:
    """Writing a file twice as large as the limit kills no process, and its page cache does not count as held."""
    with memory_limited(64) as limit:
        copying = ("dd", "if=/dev/zero", f"of={tmp_path}/large", "bs=1M", "count=128", "status=none")
        subprocess.run(limit.command(*copying), check=True)
        assert limit.kills == 0
        assert limit.peak_mib > 32
        assert limit.held_mib < 8


def test_nothing_is_left_when_it_ends() -> None:
    with memory_limited(64) as limit:
        process = subprocess.Popen(limit.command("sleep", "1000"))
        while str(process.pid) not in (limit.folder / "cgroup.procs").read_text().split():
            pass
    assert process.wait() == -signal.SIGKILL
    assert not limit.folder.exists()


def wait_for(limit: MemoryLimit, mib: int) -> None:
    while limit.held_mib < mib:
        pass
