"""The label: what a local version says, written one way and read back to one meaning."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from wheelfactory.core.cell import Backend, Cell
from wheelfactory.core.errors import InputError
from wheelfactory.core.label import Label

CK, TRITON = Backend.CK, Backend.TRITON

TEXTS = [
    pytest.param(Label((6, 2), (2, 5), CK), "rocm62torch2.5", id="ck"),
    pytest.param(Label((6, 2), (2, 5), TRITON), "rocm62torch2.5triton", id="triton"),
    pytest.param(Label((7, 0), (2, 10), CK), "rocm70torch2.10", id="torch-of-two-digits"),
    pytest.param(Label((7, 14), (2, 14), CK), "rocm7.14torch2.14", id="rocm-minor-of-two-digits"),
    pytest.param(Label((10, 0), (2, 15), CK), "rocm10.0torch2.15", id="rocm-major-of-two-digits"),
    pytest.param(Label((7, 14), (2, 14), TRITON), "rocm7.14torch2.14triton", id="dotted-triton"),
    pytest.param(Label((6, 2), (2, 5), CK, "4a948e9"), "rocm62torch2.5git4a948e9", id="commit"),
    pytest.param(Label((6, 2), (2, 5), TRITON, "4a948e9"), "rocm62torch2.5tritongit4a948e9", id="triton-commit"),
    pytest.param(Label((6, 2), (2, 5), CK, "1234567"), "rocm62torch2.5git1234567", id="commit-of-digits"),
]

PAIRS = st.tuples(st.integers(0, 120), st.integers(0, 120))
COMMITS = st.just("") | st.from_regex("[0-9a-f]{7}", fullmatch=True)
LABELS = st.builds(Label, PAIRS, PAIRS, st.sampled_from(Backend), COMMITS)


@pytest.mark.parametrize(("label", "text"), TEXTS)
def test_a_label_is_written(label: Label, text: str) -> None:
    assert str(label) == text


@pytest.mark.parametrize(("label", "text"), TEXTS)
def test_a_label_is_read(label: Label, text: str) -> None:
    assert Label.parse(text) == label


@given(LABELS)
def test_every_label_reads_back_to_itself(label: Label) -> None:
    assert Label.parse(str(label)) == label


@given(LABELS)
def test_every_label_is_a_local_version_that_normalizes_to_itself(label: Label) -> None:
    assert Version(f"2.8.3+{label}").local == str(label)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("rocm710torch2.5", id="three-digits-of-two-meanings"),
        pytest.param("rocm7.2torch2.9", id="dot-where-none-belongs"),
        pytest.param("rocm07.14torch2.14", id="rocm-with-leading-zero"),
        pytest.param("rocm7.014torch2.14", id="rocm-minor-with-leading-zero"),
        pytest.param("rocm62torch2.05", id="torch-with-leading-zero"),
        pytest.param("rocm62torch02.5", id="torch-major-with-leading-zero"),
        pytest.param("rocm62torch2.5.1", id="torch-patch"),
        pytest.param("rocm6.2.4torch2.6", id="rocm-patch"),
        pytest.param("rocm62torch2", id="torch-without-minor"),
        pytest.param("rocm6torch2.5", id="rocm-without-minor"),
        pytest.param("rocm62", id="no-torch"),
        pytest.param("torch2.5rocm62", id="other-order"),
        pytest.param("ROCM62torch2.5", id="upper-case"),
        pytest.param("rocm62torch2.5Triton", id="upper-case-backend"),
        pytest.param("rocm62torch2.5ck", id="ck-is-never-written"),
        pytest.param("rocm62torch2.5git4a948e9triton", id="commit-before-backend"),
        pytest.param("rocm62torch2.5git4a948e", id="commit-of-six-digits"),
        pytest.param("rocm62torch2.5git4a948e90", id="commit-of-eight-digits"),
        pytest.param("rocm62torch2.5git4A948E9", id="commit-in-upper-case"),
        pytest.param("rocm(62)torch2.5", id="brackets"),
        pytest.param("rocm[62]torch2.5", id="square-brackets"),
        pytest.param("rocm62torch2.5 ", id="space-after"),
        pytest.param("rocm62torch2.5\n", id="newline-after"),
        pytest.param("+rocm62torch2.5", id="plus-before"),
        pytest.param("rocm６２torch2.5", id="digits-of-another-script"),  # noqa: RUF001
        pytest.param("cu128torch2.8", id="cuda"),
    ],
)
def test_other_texts_are_refused_with_an_example(text: str) -> None:
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


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(("2.1.0", "7.1"), ("2.10.0", "7.1"), id="torch"),
        pytest.param(("2.9.1", "7.1"), ("2.9.1", "7.10"), id="rocm"),
        pytest.param(("2.9.1", "1.0"), ("2.9.1", "10.0"), id="rocm-major"),
    ],
)
def test_10_is_not_1(one: tuple[str, str], other: tuple[str, str]) -> None:
    labels = {str(Label.from_cell(Cell("2.8.3", "3.11", torch, rocm, CK))) for torch, rocm in (one, other)}
    assert len(labels) == 2


@pytest.mark.parametrize(
    ("torch", "rocm", "backend", "text"),
    [
        pytest.param("2.5.1", "6.2", CK, "rocm62torch2.5", id="torch-patch-is-dropped"),
        pytest.param("2.6.0", "6.2.4", CK, "rocm62torch2.6", id="rocm-patch-is-dropped"),
        pytest.param("2.14.1", "7.14", TRITON, "rocm7.14torch2.14triton", id="triton"),
        pytest.param("2.5", "7", CK, "rocm70torch2.5", id="a-missing-part-is-zero"),
    ],
)
def test_a_cell_has_its_label(torch: str, rocm: str, backend: Backend, text: str) -> None:
    assert str(Label.from_cell(Cell("2.8.3", "3.11", torch, rocm, backend))) == text


def test_a_build_from_a_commit_names_seven_digits_of_it() -> None:
    cell = Cell("2.8.3", "3.11", "2.5.1", "6.2", CK)
    assert str(Label.from_cell(cell, "4a948e9c0ffee0123456789012345678901234ab")) == "rocm62torch2.5git4a948e9"
