"""AMD GPUs: products by arch beside AMD's and LLVM's tables, the GPUs that the driver lists, and where ROCm is."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from rocm_bootstrap import targets

from fake_gpus import make_nodes
from wheelfactory.core.gpus import (
    GPU_NAMES_FILE,
    OVERRIDES,
    arch_sort_key,
    find_override_arch,
    gpu_products,
    product_names,
    read_driver_gpus,
    read_gpu_names,
    rocm_folders,
)


def test_an_arch_has_its_product_names() -> None:
    for arch, text in (
        ("gfx942", "Instinct MI300A, MI300X, MI308X, MI325X"),
        ("gfx906", "Instinct MI50, MI60, Radeon VII, PRO VII"),
        ("gfx1151", "Ryzen AI Max (Strix Halo), Radeon 8040S, 8050S, 8060S"),
        ("gfx90a:xnack-", product_names("gfx90a")),
        ("gfx9999", ""),
    ):
        assert product_names(arch) == text


def test_archs_are_sorted_by_generation_and_not_as_text() -> None:
    assert sorted(["gfx1030", "gfx942", "gfx1201", "gfx90a"], key=arch_sort_key) == [
        "gfx90a",
        "gfx942",
        "gfx1030",
        "gfx1201",
    ]


def test_a_product_has_one_arch_unless_amd_gave_two_chips_one_name() -> None:
    counts = Counter(name for products in gpu_products().values() for name in products)
    assert [name for name, count in counts.items() if count > 1] == ["Radeon 840M"]
    assert all(len(set(products)) == len(products) for products in gpu_products().values())


def test_an_override_stands_for_an_arch_that_has_code_of_its_own() -> None:
    assert find_override_arch(" 10.3.0 ") == "gfx1030"
    assert find_override_arch("9.0.10") == "gfx90a"
    assert find_override_arch("on") is None
    assert {find_override_arch(version) for version in OVERRIDES.values()} == {"gfx1030", "gfx1100"}
    assert not {"gfx1030", "gfx1100"} & OVERRIDES.keys()


def test_gpus_are_in_the_order_in_which_the_driver_numbers_them_and_nodes_without_a_version_are_skipped(
    tmp_path: Path,
) -> None:
    assert list(read_driver_gpus(tmp_path)) == []
    nodes = make_nodes(tmp_path, 90008, 90010, *[0, 90402] * 5, 100300, 110501)
    (nodes / "14").mkdir()
    (nodes / "14/properties").write_text("simd_count 256\n")
    assert [arch for arch, _ in read_driver_gpus(nodes)] == ["gfx908", "gfx90a", *["gfx942"] * 5, "gfx1030", "gfx1151"]


def test_a_gpu_hidden_from_the_container_is_skipped(tmp_path: Path) -> None:
    nodes = make_nodes(tmp_path, 90402, 110000)
    (nodes / "1/properties").unlink()
    (nodes / "1/properties").symlink_to("/proc/self/mem")  # can be opened, and not read
    assert [arch for arch, _ in read_driver_gpus(nodes)] == ["gfx942"]


def test_rocm_is_searched_in_the_environment_then_on_path_then_in_opt(tmp_path: Path) -> None:
    for name in ("opt/rocm-7.2.0", "opt/rocm-7.14.1", "on-path/bin", "bin"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "on-path/bin/hipcc").write_text("#!/bin/sh\n")
    (tmp_path / "on-path/bin/hipcc").chmod(0o755)
    (tmp_path / "bin/hipcc").symlink_to(tmp_path / "on-path/bin/hipcc")  # as distributions link it into /usr/bin
    environ = {"ROCM_PATH": "/first", "ROCM_HOME": "/second", "PATH": f"{tmp_path}/bin"}
    opt = [tmp_path / name for name in ("opt/rocm", "opt/rocm-7.14.1", "opt/rocm-7.2.0")]
    assert list(rocm_folders(environ, tmp_path)) == [Path("/first"), Path("/second"), tmp_path / "on-path", *opt]
    assert list(rocm_folders({"ROCM_PATH": "", "PATH": ""}, tmp_path)) == opt


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
