"""Distribute tests over processes, so that one computes while another waits for pip or a container.

A file runs in one process, which creates the fixtures of the file. Fixtures that several files share are created by the
process that needs them first (see `shared_folder`).
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from xdist.scheduler import LoadScopeScheduling

FIRST = (
    "tests/build/container/",
    "tests/kernels/test_kernels_full_size.py",
    "tests/workflows/test_build_workflow.py",
    "tests/verify/test_verify_emulation.py",
    "tests/kernels/test_kernels_real_compiler.py",
    "tests/kernels/test_kernels_preview.py",
    "tests/benchmarks/",
    "tests/kernels/test_kernels_cells.py",
    "tests/kernels/test_kernels_prove_real.py",
    "tests/docs/test_docs_executed.py",
    "tests/gpu/test_gpu_tiny_models.py",
    "tests/pipeline/test_pipeline_run.py",
    "tests/wheel/test_wheel_activation_checked.py",
    "tests/test_requirements.py",
    "tests/remote_execution/test_remote_real_cluster.py",
    "tests/emulator/test_emulator_triton.py",
    "tests/build/test_build_fallback.py",
    "tests/scripts/filter_proof/",
)
"""The longest files, the longest first, so that no process still runs one after all others have ended."""


class SlowFilesFirst(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Give each process the next file; container tests are one unit, because they share an engine and its images."""

    def __init__(self, config: pytest.Config, log: object) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False  # its order starts files with many tests first, which are fast ones

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)


def scope_of(nodeid: str) -> str:
    """Return the unit of one process: a file, or the folder of container tests."""
    containers = FIRST[0]
    return containers if nodeid.startswith(containers) else nodeid.partition("::")[0]


def slow_first(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Sort `FIRST`, then files with slow tests, then the others, otherwise in their order."""
    slow = {scope_of(item.nodeid) for item in items if item.get_closest_marker("slow")}

    def rank(item: pytest.Item) -> int:
        positions = [position for position, start in enumerate(FIRST) if item.nodeid.startswith(start)]
        return positions[0] if positions else len(FIRST) + (scope_of(item.nodeid) not in slow)

    return sorted(items, key=rank)
