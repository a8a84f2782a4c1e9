"""The proof of a set: part of its archive, and refused if it is missing, of other kernels, or of wrong ones."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from kernel_archive_factory import KEY, PARTS, fill, proof_of
from wheelfactory.core.errors import InputError
from wheelfactory.kernels.archive import pack_archive, read_archive_manifest
from wheelfactory.kernels.compile import merge_set
from wheelfactory.kernels.compiler.store import SetKey
from wheelfactory.kernels.proof import proof_path, require_proof
from wheelfactory.kernels.storage import DirectoryArchiveHost, download_set

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
