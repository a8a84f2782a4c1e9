"""The table of GPU names, compared with AMD's table of targets and with LLVM's list of processors."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from rocm_bootstrap import targets

from wheelfactory.core.gpus import GPU_NAMES_FILE, gpu_products, read_gpu_names

MEMBERS = {name: row.archs for row in read_gpu_names() for name in row.names if name.startswith("gfx")}


def test_each_row_has_archs_names_and_a_source() -> None:
    rows = read_gpu_names()
    assert len(rows) == len(GPU_NAMES_FILE.read_text(encoding="utf-8").splitlines()) - 1
    for row in rows:
        assert all(re.fullmatch(r"gfx[0-9a-f]{3,4}", arch) for arch in row.archs), row
        assert row.names, row
        assert row.source, row
        assert all(name == name.strip() != "" for name in row.names), row
        assert len(set(row.names)) == len(row.names), row
        assert not row.listed or len(row.archs) == 1, "only a single arch has products"


def test_amds_table_has_no_target_that_is_missing_here() -> None:
    assert {target.name for target in targets.ALL_TARGETS if "-" not in target.name} <= gpu_products().keys()


def test_families_have_the_members_of_amds_table() -> None:
    """Its ``gfx9_4`` and ``gfx110x`` are the ``gfx94X`` and ``gfx110X`` of AMD's package names."""
    for family in targets.ALL_SUB_FAMILIES:
        members = {target.name for target in family.members if "-" not in target.name}
        assert set(MEMBERS[f"{family.key.replace('_', '').removesuffix('x')}X"]) == members


def test_generic_targets_cover_what_amds_table_says() -> None:
    generic = {family.llvm_generic: family for family in (*targets.ALL_FAMILIES, *targets.ALL_SUB_FAMILIES)}
    for name, family in generic.items():
        if name:
            known = {target.name for target in family.members}
            # LLVM: gfx9-generic has no gfx908 and gfx90a, gfx9-4-generic also has gfx950
            assert known - {"gfx908", "gfx90a"} <= set(MEMBERS[name]) <= known | {"gfx950"}, name


def test_llvm_has_no_processor_that_is_missing_here() -> None:
    llc = shutil.which("llc")
    if not llc:
        pytest.skip("needs LLVM's llc")
    command = [llc, "-march=amdgcn", "-mcpu=help"]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    found = re.findall(r"^ +(gfx[0-9a-f]{3,4}) +- Select", done.stdout + done.stderr, re.MULTILINE)
    assert len(found) > 20
    # gfx940 and gfx941 were prototypes of gfx942, which LLVM removed
    assert set(found) - {"gfx940", "gfx941"} <= gpu_products().keys()
