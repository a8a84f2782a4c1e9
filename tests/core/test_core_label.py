"""The label: a local version that is written in one form and parsed back to one meaning."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from wheelfactory.core.cell import Backend, Cell
from wheelfactory.core.errors import InputError
from wheelfactory.core.label import Label, index_path

CK, TRITON = Backend.CK, Backend.TRITON

TEXTS = [
    (Label((6, 2), (2, 5), CK), "rocm62torch2.5"),
    (Label((6, 2), (2, 5), TRITON), "rocm62torch2.5triton"),
    (Label((7, 0), (2, 10), CK), "rocm70torch2.10"),
    (Label((7, 14), (2, 14), CK), "rocm7.14torch2.14"),
    (Label((10, 0), (2, 15), CK), "rocm10.0torch2.15"),
    (Label((6, 2), (2, 5), CK, "4a948e9"), "rocm62torch2.5git4a948e9"),
    (Label((6, 2), (2, 5), TRITON, "4a948e9"), "rocm62torch2.5tritongit4a948e9"),
    (Label((6, 2), (2, 5), CK, "", amd_torch=True), "rocm62torch2.5amd"),
    (Label((6, 2), (2, 5), TRITON, "4a948e9", amd_torch=True), "rocm62torch2.5amdtritongit4a948e9"),
]

PAIRS = st.tuples(st.integers(0, 120), st.integers(0, 120))
COMMITS = st.just("") | st.from_regex("[0-9a-f]{7}", fullmatch=True)
LABELS = st.builds(Label, PAIRS, PAIRS, st.sampled_from(Backend), COMMITS)


def test_a_label_is_written_and_read() -> None:
    for label, text in TEXTS:
        assert (str(label), Label.parse(text)) == (text, label)


@given(LABELS)
def test_every_label_reads_back_to_itself(label: Label) -> None:
    assert Label.parse(str(label)) == label


@given(LABELS)
def test_every_label_is_a_local_version_that_normalizes_to_itself(label: Label) -> None:
    assert Version(f"2.8.3+{label}").local == str(label)


def test_other_texts_are_refused_with_an_example() -> None:
    for text in (
        *("", "rocm710torch2.5", "rocm7.2torch2.9", "rocm07.14torch2.14", "rocm7.014torch2.14", "rocm62torch2.05"),
        *("rocm62torch2.5.1", "rocm6.2.4torch2.6", "rocm62torch2", "rocm62", "torch2.5rocm62", "ROCM62torch2.5"),
        *("rocm62torch2.5ck", "rocm62torch2.5git4a948e9triton", "rocm62torch2.5tritonamd", "rocm62torch2.5git4a948e"),
        *("rocm62torch2.5git4A948E9", "rocm62torch2.5\n", "+rocm62torch2.5", "rocm６２torch2.5"),  # noqa: RUF001
    ):
        with pytest.raises(InputError) as refused:
            Label.parse(text)
        assert refused.value.which == text
        assert "rocm62torch2.5triton" in refused.value.hint


@given(st.text() | st.from_regex(r"\Arocm\d+\.?\d*torch\d+\.\d+(triton)?(git[0-9a-f]{7})?\Z"))
def test_any_text_reads_back_to_itself_or_is_an_input_error(text: str) -> None:
    try:
        label = Label.parse(text)
    except InputError:
        return
    assert str(label) == text


def test_a_cell_has_its_label() -> None:
    for torch, rocm, backend, text in (
        ("2.5.1", "6.2", CK, "rocm62torch2.5"),
        ("2.14.1", "7.14", TRITON, "rocm7.14torch2.14triton"),
        ("2.5", "7", CK, "rocm70torch2.5"),
    ):
        assert str(Label.from_cell(Cell("2.8.3", "3.11", torch, rocm, backend))) == text


def test_a_preview_names_its_commit_and_has_an_index_of_its_own() -> None:
    label = Label.from_cell(Cell("2.8.4+git4a948e9", "3.11", "2.13.0", "7.2", CK))
    assert str(label) == "rocm72torch2.13git4a948e9"
    assert index_path(label.index_key) == "simple/rocm72/torch2.13/ck-preview"
    assert label.describe("CK") == "ROCm 7.2, torch 2.13, CK, preview (commit 4a948e9)"


def test_a_label_for_amds_own_torch_never_reads_as_one_for_pytorchs() -> None:
    label = Label.parse("rocm72torch2.13amdtritongit4a948e9")
    assert (label.amd_torch, label.backend, label.commit) == (True, TRITON, "4a948e9")
    assert index_path(label.index_key) == "simple/rocm72/torch2.13amd/triton-preview"
    assert label.describe("Triton") == "ROCm 7.2, torch 2.13 of AMD, Triton, preview (commit 4a948e9)"
