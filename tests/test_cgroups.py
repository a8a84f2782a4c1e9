"""A memory limit that the kernel enforces."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cgroups import find_missing_requirement, memory_limited

pytestmark = pytest.mark.skipif(find_missing_requirement() is not None, reason=find_missing_requirement() or "")


HOLD = "import sys; held = bytearray(80 << 20); print(len(held), flush=True); sys.stdin.read()"


def test_the_limit_is_of_all_processes_together_and_none_is_left_when_it_ends() -> None:
    with memory_limited(128) as limit:
        command = limit.command(sys.executable, "-c", HOLD)
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdout and process.stdout.readline() == f"{80 << 20}\n".encode()
        assert (limit.kills, 80 <= limit.peak_mib <= 128) == (0, True)
        subprocess.run(command, stdin=subprocess.DEVNULL, check=False)
        assert limit.kills == 1
    assert process.wait() == -signal.SIGKILL
    process.communicate()
    assert not limit.folder.exists()


def test_page_cache_counts_but_is_given_back(tmp_path: Path) -> None:
    """Writing a file twice as large as the limit kills no process, and its page cache does not count as held."""
    with memory_limited(64) as limit:
        copying = ("dd", "if=/dev/zero", f"of={tmp_path}/large", "bs=1M", "count=128", "status=none")
        subprocess.run(limit.command(*copying), check=True)
        assert limit.kills == 0
        assert limit.peak_mib > 32
        assert limit.held_mib < 8
