"""The manifest: rows written and read back, and what is said of a file that holds none."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from validations import a_validation, foreign, validated
from wheelfactory.core.errors import InputError
from wheelfactory.core.row import ROW_FORMS
from wheelfactory.release.manifest import MANIFEST_NAME, WheelRow, published_cells, read_manifest, write_rows
from wheelfactory.verify.result import Finding, GateResult, Status

CK = "fa2.8.3-rocm6.4-torch2.9.1-cp311-ck"
TRITON = "fa2.8.3-rocm6.4-torch2.9.1-py3-triton"


def a_row(filename: str = "einops-0.8.2-py3-none-any.whl", **changed: Any) -> WheelRow:
    """A row as small as one can be, but for what is `changed`."""
    return WheelRow(
        **{
            "project": "einops",
            "version": "0.8.2",
            "filename": filename,
            "sha256": "a" * 64,
            "size": 12,
            "requires_python": "",
            "metadata_sha256": "b" * 64,
            "published": datetime(2026, 1, 1, tzinfo=timezone.utc),
            **changed,
        }
    )


FULL = a_row(
    "flash_attn-2.8.3+rocm64torch2.9-cp311-cp311-manylinux_2_28_x86_64.whl",
    requires_python=">=3.9",
    yanked='wrong <kernels> & "quotes", é',
    cell=CK,
    label="rocm64torch2.9",
    offload_archs=("gfx90a", "gfx942"),
    cxx11_abi=True,
    glibc="2.28",
    source="sha256:" + "c" * 64,
    gates=(
        GateResult.of("identity", [], CK),
        GateResult(
            gate="import",
            status=Status.NOT_RUN,
            findings=(Finding(file="a", expected="b\nc", found="d", cure="e"),),
        ),
    ),
)


def written(folder: Path, *lines: str) -> Path:
    """A manifest of these lines."""
    path = folder / MANIFEST_NAME
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def a_line(**changed: Any) -> str:
    """The line of a row, some of its values changed to what a row need not take."""
    return json.dumps({**a_row().model_dump(mode="json"), **changed})


VALIDATED = validated(FULL, foreign(), a_validation())
OLD_LINE = (
    b'{"project":"einops","version":"0.8.2","filename":"einops-0.8.2-py3-none-any.whl","sha256":"' + b"a" * 64 + b'",'
    b'"size":12,"requires_python":"","metadata_sha256":"' + b"b" * 64 + b'","published":"2026-01-01T00:00:00Z",'
    b'"yanked":null,"cell":null,"label":null,"offload_archs":[],"cxx11_abi":null,"glibc":null,"source":null,'
    b'"gates":[],"url":null}\n'
)
"""As it was written before rows had evidence."""


@pytest.mark.parametrize("row", [a_row(), FULL, VALIDATED], ids=["least", "full", "with evidence"])
def test_a_row_reads_back_as_it_was_written(tmp_path: Path, row: WheelRow) -> None:
    (tmp_path / MANIFEST_NAME).write_bytes(write_rows([row]))
    assert read_manifest(tmp_path) == (row,)


def test_a_row_without_evidence_is_read_and_written_as_it_was_before_there_was_any(tmp_path: Path) -> None:
    (tmp_path / MANIFEST_NAME).write_bytes(OLD_LINE)
    assert read_manifest(tmp_path) == (a_row(),)
    assert write_rows([a_row()]) == OLD_LINE


texts = st.text(st.characters(exclude_categories=["Cs"]))  # a lone surrogate is no text
zones = st.integers(-12, 14).map(lambda hours: timezone(timedelta(hours=hours)))
rows = st.builds(
    WheelRow,
    **{name: st.from_regex(ROW_FORMS[name], fullmatch=True) for name in ("project", "version", "filename")},
    **{name: st.from_regex(ROW_FORMS[name], fullmatch=True) for name in ("sha256", "metadata_sha256")},
    requires_python=texts,
    published=st.datetimes(timezones=zones),
    yanked=st.none() | texts,
    cell=st.sampled_from([None, CK, TRITON]),
    label=st.sampled_from([None, "rocm64torch2.9", "rocm7.14torch2.14triton"]),
    offload_archs=st.lists(st.from_regex(ROW_FORMS["offload_archs"], fullmatch=True), max_size=3).map(tuple),
    source=st.none() | texts,
    gates=st.lists(st.builds(GateResult, detail=texts), max_size=2).map(tuple),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None)
@given(st.lists(rows, max_size=3, unique_by=lambda row: row.filename))
def test_rows_of_any_content_read_back(tmp_path: Path, given_rows: list[WheelRow]) -> None:
    (tmp_path / MANIFEST_NAME).write_bytes(write_rows(given_rows))
    assert read_manifest(tmp_path) == tuple(sorted(given_rows, key=lambda row: row.filename))


@pytest.mark.parametrize("end", ["\n", "\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029"], ids=ascii)
def test_a_row_is_one_line_whatever_ends_of_lines_it_holds(tmp_path: Path, end: str) -> None:
    row = a_row(source=f"one{end}two")
    (tmp_path / MANIFEST_NAME).write_bytes(write_rows([row]))
    assert read_manifest(tmp_path) == (row,)


def test_the_same_rows_give_the_same_bytes_whatever_their_order() -> None:
    one, two, three = (a_row(f"{name}-1-py3-none-any.whl") for name in "abc")
    manifests = {write_rows(order) for order in permutations([one, two, three])}
    assert len(manifests) == 1


def test_a_manifest_is_one_json_object_a_line() -> None:
    names = ["a-1-py3-none-any.whl", "b-1-py3-none-any.whl"]
    lines = write_rows(map(a_row, reversed(names))).decode().splitlines()
    assert [json.loads(line)["filename"] for line in lines] == names


def test_a_release_without_a_manifest_has_no_rows(tmp_path: Path) -> None:
    assert read_manifest(tmp_path) == ()


def test_an_empty_manifest_has_no_rows(tmp_path: Path) -> None:
    assert read_manifest(written(tmp_path)) == ()


def test_a_manifest_may_be_named_itself(tmp_path: Path) -> None:
    assert read_manifest(written(tmp_path, a_line())) == (a_row(),)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        pytest.param("{", "Invalid JSON", id="half a line"),
        pytest.param("", "Invalid JSON", id="blank line"),
        pytest.param("[]", "Input should be an object", id="not an object"),
        pytest.param("{}", "project: Field required", id="nothing in it"),
        pytest.param(a_line(size="many"), "size: Input should be a valid integer", id="size that is none"),
        pytest.param(a_line(published="once"), "published: Input should be a valid datetime", id="time that is none"),
        pytest.param(a_line(flavour="spicy"), "flavour: Extra inputs are not permitted", id="unknown key"),
        pytest.param(a_line(gates=[{}]), "gates.0.gate: Field required", id="inside a gate"),
        pytest.param(a_line(evidence=[{}]), "evidence.0.vendor: Field required", id="inside evidence"),
        pytest.param(a_line(filename="../a.whl"), "filename: not one: '../a.whl'", id="a path for a file name"),
        pytest.param(a_line(sha256="a" * 63), "sha256: not one: 'aaa", id="half a digest"),
        pytest.param(a_line(version="2.8 --pre"), "version: not one: '2.8 --pre'", id="version that is none"),
        pytest.param(a_line(glibc="new"), "glibc: not one: 'new'", id="glibc that is none"),
        pytest.param(a_line(offload_archs=["gfx942", "x"]), "offload_archs: not one: 'x'", id="one arch that is none"),
        pytest.param(a_line(cell="fa2.8.3"), "cell: not a cell id: fa2.8.3", id="cell that is none"),
        pytest.param(
            a_line(label="rocm710torch2.9"), "label: not a label of this factory: rocm710torch2.9", id="label of none"
        ),
    ],
)
def test_a_damaged_row_is_refused_with_its_place(tmp_path: Path, line: str, what: str) -> None:
    path = written(tmp_path, a_line(), a_line(), line)
    with pytest.raises(InputError) as refused:
        read_manifest(tmp_path)
    assert refused.value.what == "not a manifest row"
    assert refused.value.which.startswith(f"{path}:3: {what}")
    assert "restore it" in refused.value.hint


def test_a_row_that_is_not_utf_8_is_refused_with_its_place(tmp_path: Path) -> None:
    path = written(tmp_path, a_line(), a_line(project="caf?"))
    path.write_bytes(path.read_bytes().replace(b"?", b"\xe9"))
    with pytest.raises(InputError, match=r"manifest\.jsonl:2: "):
        read_manifest(path)


def test_a_manifest_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no such manifest: .*absent") as refused:
        read_manifest(tmp_path / "absent")
    assert refused.value.hint


def test_a_manifest_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / MANIFEST_NAME).mkdir()
    with pytest.raises(InputError, match=r"cannot read: .*manifest\.jsonl \(Is a directory\)") as refused:
        read_manifest(tmp_path)
    assert refused.value.hint


def test_a_yanked_wheel_counts_as_published() -> None:
    assert published_cells([a_row(cell=CK, yanked="broken"), a_row(cell=TRITON)]) == {CK, TRITON}


def test_a_dependency_is_no_published_cell() -> None:
    assert published_cells([a_row()]) == frozenset()


@pytest.mark.parametrize(
    ("label", "key"),
    [
        (None, None),
        ("rocm64torch2.9", ("rocm64", "torch2.9", "ck")),
        ("rocm64torch2.9triton", ("rocm64", "torch2.9", "triton")),
        ("rocm7.14torch2.14", ("rocm7.14", "torch2.14", "ck")),
        ("rocm64torch2.9tritongit0123abc", ("rocm64", "torch2.9", "triton")),
    ],
    ids=["dependency", "ck", "triton", "dotted", "commit"],
)
def test_the_label_says_which_index_lists_a_wheel(label: str | None, key: tuple[str, str, str] | None) -> None:
    assert a_row(label=label).index_key == key
