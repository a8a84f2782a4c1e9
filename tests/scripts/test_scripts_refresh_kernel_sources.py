"""The chore that writes the digests of kernel sources, and of the proofs of filters, into matrix.yaml."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dispatch_release import prove_dispatch_filters, write_dispatch_release
from refresh_kernel_sources import Digests, edit_digests, find_digests, refresh_kernel_sources
from small_matrix import edited, small_matrix
from wheelfactory.core.errors import DONE
from wheelfactory.core.files import ROOT
from wheelfactory.kernels.source_list import SourceList, write_source_list
from wheelfactory.matrix.load import load_matrix

DIGEST = "1a2b3c4d" + 56 * "0"
OTHER = DIGEST[::-1]


@pytest.fixture
def matrix(tmp_path: Path) -> Path:
    """The small matrix; the sources of 2.8.3 are listed in `tmp_path`, and those of 2.6.3 cannot be fetched."""
    path = tmp_path / "matrix.yaml"
    path.write_text(edited(("https://github.com/Dao-AILab/flash-attention", (tmp_path / "absent").as_uri())))
    write_source_list(SourceList(("fmha_fwd",), 1, DIGEST), small_matrix().flash_attn["2.8.3"].source_pin, tmp_path)
    return path


def test_a_missing_digest_is_added_and_a_wrong_one_replaced(matrix: Path, tmp_path: Path) -> None:
    before = matrix.read_text()
    for _ in range(2):
        found = refresh_kernel_sources(matrix, tmp_path, os.environ)
        assert found.changed == {"2.8.3": Digests(DIGEST)}
        assert load_matrix(matrix).flash_attn["2.8.3"].kernel_sources == DIGEST
        assert [line for line in matrix.read_text().splitlines() if line not in before.splitlines()] == [
            f"    kernel-sources: {DIGEST}"
        ]
        matrix.write_text(matrix.read_text().replace(DIGEST, OTHER))


def test_a_release_that_cannot_be_fetched_keeps_what_it_has_and_a_second_run_changes_nothing(
    matrix: Path, tmp_path: Path
) -> None:
    matrix.write_text(edit_digests(matrix.read_text(), {"2.6.3": Digests(OTHER)}))
    found = refresh_kernel_sources(matrix, tmp_path, os.environ)
    assert "git fetch" in found.skipped["2.6.3"]
    assert load_matrix(matrix).flash_attn["2.6.3"].kernel_sources == OTHER
    stamp = matrix.stat().st_mtime_ns
    assert refresh_kernel_sources(matrix, tmp_path, os.environ).unchanged == 1
    assert matrix.stat().st_mtime_ns == stamp


def test_filters_are_proved_and_the_digest_of_the_proof_is_written(tmp_path: Path) -> None:
    matrix = write_dispatch_release(tmp_path, tmp_path)
    digests = find_digests("2.8.3", load_matrix(matrix).flash_attn["2.8.3"], tmp_path, os.environ)
    assert digests.proof == prove_dispatch_filters()
    for _ in range(2):  # added, then replaced
        matrix.write_text(edit_digests(matrix.read_text(), {"2.8.3": digests}))
        assert Digests.stated(load_matrix(matrix).flash_attn["2.8.3"]) == digests
        digests = Digests(DIGEST, OTHER)


def test_the_style_of_the_file_is_kept() -> None:
    flow = "flash-attn: {'2.8.3': {python: '>=3.9'}, '2.6.3': {kernel-sources: 'x', python: '>=3.8'}}\n"
    assert edit_digests(flow, {"2.8.3": Digests(DIGEST), "2.6.3": Digests(OTHER)}) == (
        f"flash-attn: {{'2.8.3': {{kernel-sources: {DIGEST}, python: '>=3.9'}}, "
        f"'2.6.3': {{kernel-sources: {OTHER}, python: '>=3.8'}}}}\n"
    )
    dos = "flash-attn:\r\n  '2.8.3':\r\n    python: '>=3.9'\r\n"
    assert edit_digests(dos, {"2.8.3": Digests(DIGEST)}) == dos.replace(
        "    python", f"    kernel-sources: {DIGEST}\r\n    python"
    )


def test_the_script_prints_what_it_wrote_and_skipped(matrix: Path, tmp_path: Path) -> None:
    script: list[str | Path] = [sys.executable, ROOT / "scripts/refresh_kernel_sources.py"]
    done = subprocess.run([*script, "--matrix", matrix, "--cache", tmp_path], capture_output=True, text=True)
    assert done.returncode == DONE, done.stderr
    first, second = done.stdout.splitlines()
    assert first == f"written    2.8.3  {DIGEST}"
    assert second.startswith("skipped    2.6.3: command failed: git fetch")
    assert done.stderr.splitlines()[-1] == "2 releases with CK: 1 written, 0 unchanged"
