"""The device code in ROCm wheels that other projects publish, in the formats of their compilers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from wheelfactory.build.sources import fetch_file
from wheelfactory.wheel.archive import find_archive_faults
from wheelfactory.wheel.read import Wheel

pytestmark = pytest.mark.slow

OLD = ("gfx1030", "gfx1100", "gfx1200", "gfx1201", "gfx900", "gfx906", "gfx908", "gfx90a", "gfx940", "gfx941", "gfx942")
GENERIC = ("gfx10-3-generic", "gfx11-generic", "gfx12-generic", "gfx9-4-generic", "gfx908", "gfx90a")


@pytest.mark.parametrize(
    ("project", "version", "sha256", "form", "targets"),
    [
        pytest.param(
            *("jax-rocm60-plugin", "0.5.0", "c2bc3c6f78a63d1c04d10ed3279807fd83e19e2ed495cc6717d5e443fefa551f"),
            *("plain", OLD),
            id="plain",
        ),
        pytest.param(
            *("jax-rocm7-plugin", "0.10.0", "f00e5664a380bef3657b412e4ea3895a5a29656155074e2667e68194eabb5329"),
            *("CCOB v3 zstd", GENERIC),
            id="packed, for generic targets",
        ),
    ],
)
def test_device_code_of_a_published_wheel(
    cache: Path, project: str, version: str, sha256: str, form: str, targets: tuple[str, ...]
) -> None:
    name = f"{project.replace('-', '_')}-{version}-cp312-cp312-manylinux_2_28_x86_64.whl"
    path = fetch_file(project, name, sha256, cache / "sources", os.environ)

    bundles = [bundle for file in Wheel.open(path).elf_files for bundle in file.bundles]

    assert find_archive_faults(path) == ()
    assert [(bundle.form, bundle.targets) for bundle in bundles] == [(form, frozenset(targets))] * 4
    assert not any("another arch" in entry.fault for item in bundles for entry in item.entries)
