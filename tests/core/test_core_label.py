"""Local versions: one form and one meaning of a label; which torch a version is, and what installs it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from wheelfactory.core.cell import Backend, Cell
from wheelfactory.core.errors import InputError
from wheelfactory.core.label import Label, TorchOrigin, find_origin, find_own_index, index_path, rocm_of_torch
from wheelfactory.core.published import pip_for, url_with_sha256, uv_for

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


HIPS = {"10.1": "7.16", "10.0": "7.15", "7.2": "7.2"}
INDEXES = {"7.2": "https://download.pytorch.org/whl/rocm7.2"}


@pytest.mark.parametrize(
    ("version", "origin", "index"),
    [
        ("2.13.0+rocm7.2", TorchOrigin.PYTORCH, INDEXES["7.2"]),
        ("2.6.0+rocm6.2.4", TorchOrigin.PYTORCH, None),
        ("2.13.0+cu128", TorchOrigin.PYTORCH, None),
        ("2.15.0.dev20261101+rocm7.2", TorchOrigin.NIGHTLY, "https://download.pytorch.org/whl/nightly/rocm7.2"),
        ("2.12.0+rocm7.14.0", TorchOrigin.AMD, "https://repo.amd.com/rocm/whl-multi-arch/"),
        ("2.13.0+rocm10.0.0", TorchOrigin.AMD, "https://stable.repo.amd.com/rocm/whl-next/"),
        ("2.9.1+rocm7.2.0.lw.git7e1940d4", TorchOrigin.AMD, None),
        ("2.14.0a0+rocm10.1.0a20260811", TorchOrigin.AMD_NIGHTLY, "https://rocm.nightlies.amd.com/whl-multi-arch/"),
        ("2.13.0a0+gitabc1234", TorchOrigin.OTHER, None),
        ("2.12.1", TorchOrigin.OTHER, None),
    ],
)
def test_a_version_tells_who_built_it_and_where_it_is(version: str, origin: TorchOrigin, index: str | None) -> None:
    assert find_origin(version) is origin
    assert find_own_index(version, INDEXES) == index


@pytest.mark.parametrize(
    ("version", "hip", "named", "rocm"),
    [
        ("2.14.0+rocm10.0.0", "7.15.26333", None, (10, 0)),
        ("2.14.0", "7.15.26333", "10.0.0", (10, 0)),
        ("2.14.0", "7.16.1", None, (10, 1)),
        ("2.12.1", "7.2.53211", None, (7, 2)),
        ("2.9.1+rocm6.4", None, None, (6, 4)),
        ("2.13.0+cu128", None, None, None),
        ("2.13.0", "unknown", None, None),
    ],
)
def test_rocm_is_read_from_the_label_then_from_torch_then_from_hip(
    version: str, hip: str | None, named: str | None, rocm: tuple[int, int] | None
) -> None:
    assert rocm_of_torch(version, hip, named, HIPS) == rocm


PYTHON, INDEX = "/venv/bin/python", "https://wheels.example/simple/"


def test_an_index_replaces_the_default_one() -> None:
    for installer, command in (
        (pip_for(), f"pip install --index-url {INDEX} flash-attn"),
        (pip_for(PYTHON), f"{PYTHON} -m pip install --index-url {INDEX} flash-attn"),
        (uv_for(), f"uv pip install --default-index {INDEX} flash-attn"),
        (uv_for(PYTHON), f"uv pip install --python {PYTHON} --default-index {INDEX} flash-attn"),
    ):
        assert installer.install_from_index(INDEX, "flash-attn") == tuple(command.split())


def test_wheels_are_installed_without_dependencies() -> None:
    for installer, again, command in (
        (pip_for(PYTHON), False, f"{PYTHON} -m pip install --no-deps a b"),
        (pip_for(PYTHON), True, f"{PYTHON} -m pip install --no-deps --force-reinstall a b"),
        (uv_for(PYTHON), True, f"uv pip install --python {PYTHON} --no-deps --reinstall a b"),
    ):
        assert installer.install_without_dependencies("a", "b", again=again) == tuple(command.split())


def test_torch_comes_from_one_index_with_its_dependencies() -> None:
    for installer, options, command in (
        (pip_for(PYTHON), [], f"{PYTHON} -m pip install torch==2.9.* --index-url {INDEX}"),
        (uv_for(PYTHON), ["-U"], f"uv pip install --python {PYTHON} -U torch==2.9.* --default-index {INDEX}"),
    ):
        assert installer.install_torch(*options, "torch==2.9.*", index=INDEX) == tuple(command.split())


def test_pip_uninstalls_without_confirmation() -> None:
    assert pip_for(PYTHON).uninstall_command == (PYTHON, "-m", "pip", "uninstall", "--yes")
    assert uv_for(PYTHON).uninstall_command == ("uv", "pip", "uninstall", "--python", PYTHON)


def test_a_url_ends_in_the_digest_that_pip_verifies() -> None:
    assert url_with_sha256("https://host/a.whl", "00ff") == "https://host/a.whl#sha256=00ff"
