"""Kernel sets: which cells share their kernels, what a set is called, and which proofs of a set are refused."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from kernel_archive_factory import KEY, PARTS, fill, proof_of
from small_matrix import Edit, slim_image, small_matrix
from wheelfactory.core.errors import InputError
from wheelfactory.kernels.archive import pack_archive, read_archive_manifest
from wheelfactory.kernels.compile import merge_set
from wheelfactory.kernels.compiler.store import SetKey
from wheelfactory.kernels.kernel_set import (
    KernelSet,
    group_kernel_sets,
    proof_path,
    require_proof,
    require_set,
    sets_of_cell,
    stored_set_name,
)
from wheelfactory.kernels.storage import DirectoryArchiveHost, download_set
from wheelfactory.matrix.expand import expand

SMALL = small_matrix()
CELLS = expand(SMALL).cells
SETS = group_kernel_sets(SMALL, CELLS)


def test_the_sets_of_the_small_matrix() -> None:
    """For each cell, in matrix order, a set for each arch, then one for its host code."""
    assert [(kernel_set.id, [cell.id for cell in kernel_set.cells]) for kernel_set in SETS] == [
        ("fa2.8.3-rocm6.4-gfx942", ["fa2.8.3-rocm6.4-torch2.9.1-cp311-ck"]),
        ("fa2.8.3-rocm6.4-cxx11", ["fa2.8.3-rocm6.4-torch2.9.1-cp311-ck"]),
        ("fa2.8.3-rocm6.2-gfx90a", ["fa2.8.3-rocm6.2-torch2.5.1-cp311-ck"]),
        ("fa2.8.3-rocm6.2-gfx942", ["fa2.8.3-rocm6.2-torch2.5.1-cp311-ck"]),
        ("fa2.8.3-rocm6.2-precxx11", ["fa2.8.3-rocm6.2-torch2.5.1-cp311-ck"]),
        ("fa2.6.3-rocm6.4-gfx942", ["fa2.6.3-rocm6.4-torch2.9.1-cp311-ck"]),
        ("fa2.6.3-rocm6.4-cxx11", ["fa2.6.3-rocm6.4-torch2.9.1-cp311-ck"]),
        ("fa2.6.3-rocm6.2-gfx90a", ["fa2.6.3-rocm6.2-torch2.5.1-cp311-ck"]),
        ("fa2.6.3-rocm6.2-gfx942", ["fa2.6.3-rocm6.2-torch2.5.1-cp311-ck"]),
        ("fa2.6.3-rocm6.2-precxx11", ["fa2.6.3-rocm6.2-torch2.5.1-cp311-ck"]),
    ]


def test_a_cell_built_for_some_archs_links_their_sets_and_its_host_code() -> None:
    cell = next(cell for cell in CELLS if cell.id == "fa2.8.3-rocm6.2-torch2.5.1-cp311-ck")
    assert len(sets_of_cell(SMALL, cell)) == 3
    assert sets_of_cell(SMALL, cell, ("gfx942",)) == ("fa2.8.3-rocm6.2-gfx942", "fa2.8.3-rocm6.2-precxx11")


# one set for equal sources

DIGEST = "1a2b3c4d" + 56 * "0"
GIT = "    git:\n      repository: https://github.com/Dao-AILab/flash-attention\n"


def digests(first: str, second: str) -> tuple[Edit, Edit]:
    """State a digest for each of the two releases of the small matrix."""
    sha256 = "      sha256: 1e71dd64a9e0280e0447b8a0c2541bad4bf6ac65bdeaa2f90e51a9e57de0370d\n"
    return (sha256, f"{sha256}    kernel-sources: '{first}'\n"), (GIT, f"    kernel-sources: '{second}'\n{GIT}")


def sets_of(*edits: Edit) -> dict[str, KernelSet]:
    matrix = small_matrix(*edits)
    return {kernel_set.id: kernel_set for kernel_set in group_kernel_sets(matrix, expand(matrix).cells)}


def test_releases_with_equal_sources_are_one_set() -> None:
    sets = sets_of(*digests(DIGEST, DIGEST))
    assert {name: tuple(cell.id for cell in kernel_set.cells) for name, kernel_set in sets.items()} == {
        **dict.fromkeys(
            ("ck-1a2b3c4d-rocm6.4-gfx942", "ck-1a2b3c4d-rocm6.4-cxx11"),
            ("fa2.8.3-rocm6.4-torch2.9.1-cp311-ck", "fa2.6.3-rocm6.4-torch2.9.1-cp311-ck"),
        ),
        **dict.fromkeys(
            ("ck-1a2b3c4d-rocm6.2-gfx90a", "ck-1a2b3c4d-rocm6.2-gfx942", "ck-1a2b3c4d-rocm6.2-precxx11"),
            ("fa2.8.3-rocm6.2-torch2.5.1-cp311-ck", "fa2.6.3-rocm6.2-torch2.5.1-cp311-ck"),
        ),
    }
    assert {kernel_set.releases for kernel_set in sets.values()} == {("2.8.3", "2.6.3")}


def test_a_release_without_a_digest_is_named_by_its_version() -> None:
    assert [name.partition("-rocm")[0] for name in sets_of(digests(DIGEST, "")[0])] == [
        *(5 * ["ck-1a2b3c4d"] + 5 * ["fa2.6.3"])
    ]


def test_the_stored_name_of_shared_kernels_does_not_depend_on_the_release() -> None:
    def name(*edits: Edit) -> str:
        matrix = small_matrix(*edits)
        return stored_set_name(matrix, group_kernel_sets(matrix, expand(matrix).cells)[0])

    shared, other = digests(DIGEST, DIGEST), f"{DIGEST[:-1]}1"
    assert name(*shared) == name(*shared, ("1e71dd64", "2e71dd64"))
    assert name(*shared) != name(*digests(other, other))


@pytest.mark.parametrize(
    ("sets", "hint"),
    [(SETS, "`wheelfactory plan --all`"), ((), "no CK cell is selected")],
    ids=["other sets", "no sets"],
)
def test_an_unknown_id_is_refused_with_a_hint(sets: tuple[KernelSet, ...], hint: str) -> None:
    with pytest.raises(InputError, match="unknown kernel set: fa9") as refused:
        require_set(sets, "fa9")
    assert hint in refused.value.hint
    assert not any(kernel_set.id in refused.value.hint for kernel_set in sets)


# the name under which later runs find it

SET_ID = "fa2.8.3-rocm6.2-gfx942"
TAGGED: Edit = ("rocm/pytorch:6.2", "rocm/pytorch:rocm6.2_ubuntu22.04_py3.10_pytorch_release_2.3.0")
TRIM = """\
      trim: {filters: [{direction: fwd, filter: '*_lse'}], source: the bindings}
      source: setup.py of the sdist
"""
SLIM = slim_image("6.2")


def name_of(*edits: Edit, slim: bool = False) -> str:
    """The name under which a set of the edited matrix is kept."""
    matrix = small_matrix(*edits)
    return stored_set_name(matrix, require_set(group_kernel_sets(matrix, expand(matrix).cells), SET_ID), slim=slim)


@pytest.mark.parametrize(
    "edit",
    [
        pytest.param(("1e71dd64", "2e71dd64"), id="the sources"),
        pytest.param(("archs: [gfx90a, gfx942]\n    images", "archs: [gfx942]\n    images"), id="the archs"),
        pytest.param(("      source: setup.py of the sdist\n", TRIM), id="the filters"),
        pytest.param(("rocm6.2_ubuntu", "rocm6.2.1_ubuntu"), id="the ROCm release"),
        pytest.param(
            ("2.3.0\n        distribution: ubuntu22.04", "2.3.0\n        distribution: debian12"), id="the system"
        ),
    ],
)
def test_everything_that_decides_the_objects_changes_the_stored_name(edit: Edit) -> None:
    assert name_of(TAGGED, edit) != name_of(TAGGED)


@pytest.mark.parametrize(
    "edit",
    [
        pytest.param(("torch: '2.3.0'", "torch: '2.4.0'"), id="torch"),
        pytest.param(("pytorch_release_2.3.0", "pytorch_release_2.4.0"), id="the tag of another torch"),
        pytest.param(("source: index of ROCm 6.2", "source: another page"), id="a source"),
        pytest.param(("python: ['3.12', '3.11']\n\nflash", "python: ['3.11', '3.10']\n\nflash"), id="cells"),
    ],
)
def test_other_facts_do_not_change_the_stored_name(edit: Edit) -> None:
    assert name_of(TAGGED, edit) == name_of(TAGGED)


def test_an_image_without_a_release_counts_by_its_tag() -> None:
    names = {name_of(), name_of(("rocm/pytorch:6.2", "rocm/pytorch:6.2.1")), name_of(TAGGED)}
    assert len(names) == 3
    assert all(re.fullmatch(f"kernels-{re.escape(SET_ID)}-[0-9a-f]{{12}}", name) for name in names)


def test_the_slim_image_of_another_release_has_another_name() -> None:
    newer = ("6.2-complete", "6.2.4-complete")
    assert name_of(TAGGED, SLIM, newer, slim=True) != name_of(TAGGED, SLIM, newer) == name_of(TAGGED)
    assert name_of(TAGGED, SLIM, slim=True) == name_of(TAGGED)  # the same ROCm on the same system


SET = "ck-62327233-rocm6.4-gfx942"
OTHER_COMPILER = SetKey({**PARTS, "compiler": {"version": "HIP 6.4", "sha256": "cd" * 32}}, KEY.sources)


@pytest.mark.parametrize(
    ("changes", "refused"),
    [
        ({"set": "ck-62327233-rocm6.4-gfx90a"}, "proof of other kernels"),
        ({"key": OTHER_COMPILER.digest}, "proof of other kernels"),
        ({"archs": ("gfx90a",)}, "proof of other kernels"),
        ({"executed": {"kernel": "fmha_fwd_d256"}}, "proof of other kernels"),
        ({"executed": {}}, "no kernel of the set was executed"),
        ({"faults": ("kernel: store outside the buffers",)}, "compute something wrong: .*: kernel: store outside"),
    ],
)
def test_only_a_proof_of_the_same_kernels_without_faults_counts(changes: dict[str, Any], refused: str) -> None:
    with pytest.raises(InputError, match=refused) as error:
        require_proof(SET, KEY, proof_of(SET, **changes))
    assert error.value.hint


def test_device_code_with_kernels_needs_a_proof_and_host_code_does_not() -> None:
    require_proof(SET, SetKey({**PARTS, "targets": ["host"]}, KEY.sources), None)
    require_proof(SET, KEY, proof_of(SET))
    require_proof(SET, KEY, proof_of(SET, kernels=0, executed={}))
    with pytest.raises(InputError, match="no kernel of the set was executed") as error:
        require_proof(SET, KEY, None)
    assert "--prove" in error.value.hint


def test_a_merged_archive_carries_its_proof_to_other_machines(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder, proof = tmp_path / "archives", proof_of(SET)
    plain = pack_archive(fill(tmp_path / "store"), SET, folder, None)
    host = DirectoryArchiveHost(tmp_path / "release")
    host.upload("plain", plain)
    beside = proof_path(folder, SET, KEY.digest)
    beside.write_text(json.dumps(asdict(proof)))
    merged = merge_set(folder, SET, tmp_path / "stores")
    assert merged == plain
    again = json.loads(json.dumps(asdict(proof)))
    found = read_archive_manifest(merged).proof
    assert found
    assert json.loads(json.dumps(asdict(found))) == again
    beside.unlink()
    assert merge_set(folder, SET, tmp_path / "stores") == merged
    assert read_archive_manifest(merged).proof == found, "a proved archive stays as it is"

    caplog.set_level("INFO")
    host.upload("newer", merged)
    assert read_archive_manifest(download_set(host, "newer", SET, tmp_path / "dest")).proof == found
    assert "1 of 3 kernels executed by an emulator, for gfx942; 1 calls; 0 faults" in caplog.text
    with pytest.raises(InputError, match="no kernel of the set was executed"):
        download_set(host, "plain", SET, tmp_path / "dest")

    foreign = pack_archive(fill(tmp_path / "store"), SET, folder, None, proof=replace(proof, key="0" * 64))
    host.upload("foreign", foreign)
    with pytest.raises(InputError, match="a proof of other kernels"):
        download_set(host, "foreign", SET, tmp_path / "dest")


def test_a_damaged_proof_is_not_merged(tmp_path: Path) -> None:
    pack_archive(fill(tmp_path / "store"), SET, tmp_path / "archives", None)
    proof_path(tmp_path / "archives", SET, KEY.digest).write_text('{"format": 1}')
    with pytest.raises(InputError, match="damaged proof of kernels"):
        merge_set(tmp_path / "archives", SET, tmp_path / "stores")
