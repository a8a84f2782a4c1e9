"""What the tests of real device code need."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hip_toolchain import HipToolchain, make_hip_toolchain, why_not


@pytest.fixture(scope="session")
def hip(cache: Path) -> HipToolchain:
    """A HIP compiler; where there can be none its tests are skipped, unless HIP_TOOLCHAIN says that they must run."""
    reason = why_not()
    if reason and os.environ.get("HIP_TOOLCHAIN") == "required":
        pytest.fail(f"no HIP toolchain: {reason}")
    if reason:
        pytest.skip(f"no HIP toolchain: {reason}")
    return make_hip_toolchain(cache)
