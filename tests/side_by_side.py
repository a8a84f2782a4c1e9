"""How tests are shared out when several processes run them: one waits for pip or a container while another computes.

What is made once for a file is made by the one process that runs the file. What several files need is made by the
process that comes first (see `turns`).
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from xdist.scheduler import LoadScopeScheduling

FIRST = (
    "tests/build/container/",
    "tests/kernels/test_kernels_full_size.py",
    "tests/kernels/test_kernels_real_compiler.py",
)
"""The longest, in minutes, so that none of them is still running when all else is done."""


class InOrder(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Gives each process the next file; the tests of containers are one, as they share an engine and its images."""

    def __init__(self, config: pytest.Config, log: object) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False  # it would put files with many tests first, and those are the fast ones

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)


def scope_of(nodeid: str) -> str:
    """What must be run by one process: a file, or a folder with an engine."""
    engine = FIRST[0]
    return engine if nodeid.startswith(engine) else nodeid.partition("::")[0]


def slow_first(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """`FIRST`, then files with slow tests, then the others; else in the order they were in."""
    slow = {scope_of(item.nodeid) for item in items if item.get_closest_marker("slow")}

    def rank(item: pytest.Item) -> int:
        early = [place for place, start in enumerate(FIRST) if item.nodeid.startswith(start)]
        return early[0] if early else len(FIRST) + (scope_of(item.nodeid) not in slow)

    return sorted(items, key=rank)
