"""The manifest: rows are written and read back, and other files are refused with the reason.

The contents of a row are tested for both readers in tests/core/test_core_row.py.
"""

from __future__ import annotations

import json
import math
from datetime import datetime, timedelta, timezone
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from release_factory import plain_row
from validations import amd_validation, nvidia_validation, with_evidence
from wheel_factory import MATRIX, second_build
from wheelfactory.core.cell import MAX_REPLACEMENTS, Cell
from wheelfactory.core.errors import InputError, PublishError
from wheelfactory.core.published import MANIFEST_NAME
from wheelfactory.core.row import ROW_FORMS
from wheelfactory.release.manifest import (
    WheelRow,
    available_cells,
    count_foldable,
    has_row,
    manifest_bytes,
    next_replacements,
    outdated_reason,
    read_manifest,
)
from wheelfactory.verify.result import Finding, GateResult, Status

CK = "fa2.8.3-rocm6.4-torch2.9.1-cp311-ck"
TRITON = "fa2.8.3-rocm6.4-torch2.9.1-py3-triton"


FULL = plain_row(
    "flash_attn-2.8.3+rocm64torch2.9-cp311-cp311-manylinux_2_28_x86_64.whl",
    project="flash-attn",
    version="2.8.3+rocm64torch2.9",
    requires_python=">=3.9",
    yanked='wrong <kernels> & "quotes", é',
    cell=CK,
    label="rocm64torch2.9",
    offload_archs=("gfx90a", "gfx942"),
    cxx11_abi=True,
    glibc="2.28",
    source="sha256:" + "c" * 64,
    gates=(
        GateResult.from_findings("identity", [], CK),
        GateResult(
            gate="import", status=Status.NOT_RUN, findings=(Finding(file="a", expected="b\nc", found="d", remedy="e"),)
        ),
    ),
)


NO_FIGURE = FULL.gates[0].model_copy(update={"figures": {"bytes": math.nan}})


def written(folder: Path, *lines: str) -> Path:
    """A manifest of these lines."""
    path = folder / MANIFEST_NAME
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def a_line(**changed: Any) -> str:
    """The line of a row, some of its values changed to what a row need not take."""
    return json.dumps({"format": 2, **plain_row().model_dump(mode="json"), **changed})


VALIDATED = with_evidence(FULL, nvidia_validation(), amd_validation())


@pytest.mark.parametrize("row", [plain_row(), FULL, VALIDATED], ids=["least", "full", "with evidence"])
def test_a_row_reads_back_as_it_was_written_and_is_found_in_a_manifest(tmp_path: Path, row: WheelRow) -> None:
    (tmp_path / MANIFEST_NAME).write_bytes(manifest_bytes([row]))
    assert read_manifest(tmp_path) == (row,)
    before, after = (plain_row(f"einops-{number}-py3-none-any.whl", version=number) for number in "09")
    for manifest in (manifest_bytes([before, row, after]), manifest_bytes([row])):
        assert has_row(manifest, row)
        assert not has_row(manifest, row.model_copy(update={"size": row.size + 1}))


def characters(*, lines: bool = False) -> st.SearchStrategy[str]:
    """Texts without control characters for terminals or browsers; findings may have `lines`."""
    refused = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
    plain = st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"], exclude_characters=refused)
    return st.text(plain | st.sampled_from("\n\t") if lines else plain)


zones = st.integers(-12, 14).map(lambda hours: timezone(timedelta(hours=hours)))
rows = st.builds(
    plain_row,
    st.integers(0, 9).map(lambda build: f"einops-0.8.2-{build}-py3-none-any.whl"),
    published=st.datetimes(datetime(2000, 1, 2), datetime(2999, 1, 1), timezones=zones),
    yanked=st.none() | characters().filter(str.strip),
    offload_archs=st.lists(st.from_regex(ROW_FORMS["arch"], fullmatch=True), max_size=3).map(tuple),
    source=st.none() | characters(),
    gates=st.lists(
        st.builds(GateResult, detail=characters(lines=True), gate=characters()),
        max_size=2,
        unique_by=lambda gate: gate.gate,
    ).map(tuple),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(st.lists(rows, max_size=3, unique_by=lambda row: row.filename))
def test_rows_of_any_content_read_back(tmp_path: Path, given_rows: list[WheelRow]) -> None:
    (tmp_path / MANIFEST_NAME).write_bytes(manifest_bytes(given_rows))
    assert read_manifest(tmp_path) == tuple(sorted(given_rows, key=lambda row: row.filename))


def test_rows_that_would_not_read_back_are_not_written() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"published": datetime(2026, 1, 1)}, "published: invalid"),  # time without a zone
        ({"yanked": "a\x1b[2J"}, "yanked: has control characters"),  # control character
        ({"yanked": "\ud800"}, "surrogates not allowed"),  # half a character
        ({"cell": CK}, "label: not a label"),  # cell of a dependency
        ({"gates": 2 * FULL.gates[:1]}, "gates: duplicate: 'identity'"),  # a gate twice
        ({"offload_archs": ["gfx942"]}, "would read back as a different row"),  # a list that can change
        ({"url": "wheels/einops.whl"}, "url: invalid"),  # a relative address
        ({"gates": (NO_FIGURE,)}, "gates.0.figures.bytes: Input should be a valid number"),
    ]
    for changed, why in cases:
        with pytest.raises(PublishError, match="cannot write the manifest") as refused:
            manifest_bytes([FULL, plain_row().model_copy(update=changed)])
        assert why in str(refused.value)


def test_a_manifest_is_one_json_object_a_line_in_the_same_order_whatever_that_of_the_rows() -> None:
    rows = [plain_row(f"{name}-1-py3-none-any.whl", project=name, version="1") for name in "abc"]
    (manifest,) = {manifest_bytes(order) for order in permutations(rows)}
    lines = manifest.decode().splitlines()
    assert [json.loads(line)["filename"] for line in lines] == [row.filename for row in rows]


def test_a_damaged_row_is_refused_with_its_place(tmp_path: Path) -> None:
    others = [a_line(filename=f"einops-0.8.2-{build}-py3-none-any.whl") for build in (1, 2)]
    for line, what in (
        (a_line(flavour="spicy"), "flavour: Extra inputs are not permitted"),
        (a_line(gates=[{"gate": "a", "status": "maybe"}]), "gates.0.status: Input"),
    ):
        path = written(tmp_path, *others, line)
        with pytest.raises(InputError) as refused:
            read_manifest(tmp_path)
        assert refused.value.what == "not a manifest row"
        assert refused.value.which.startswith(f"{path}:3: {what}")
        assert "restore it" in refused.value.hint


def test_a_missing_or_unreadable_manifest_is_refused_but_a_release_may_have_none_yet(tmp_path: Path) -> None:
    assert read_manifest(tmp_path) == ()
    (tmp_path / MANIFEST_NAME).mkdir()
    for path, error in (
        (tmp_path / "absent", r"no such manifest: .*absent"),
        (tmp_path, r"cannot read: .*manifest\.jsonl \(Is a directory\)"),
    ):
        with pytest.raises(InputError, match=error) as refused:
            read_manifest(path)
        assert refused.value.hint


def test_a_cell_with_a_yanked_wheel_alone_is_not_published() -> None:
    assert available_cells([plain_row()], MATRIX) == frozenset(), "a dependency"
    assert available_cells([plain_row(cell=CK, yanked="broken"), plain_row(cell=TRITON)], MATRIX) == {TRITON}
    assert available_cells([plain_row(cell=CK, yanked="broken"), plain_row(cell=CK)], MATRIX) == {CK}


@pytest.mark.parametrize(
    ("builds", "number"),
    # the first, after the last, earlier builds do not count, and there is no name after the last letter
    [(["-2"], 1), (["-2", "-2b", "-2a"], 3), (["-1c", "-2"], 1), (["-2z"], MAX_REPLACEMENTS)],
)
def test_a_replacement_comes_after_every_wheel_of_its_build(builds: list[str], number: int) -> None:
    names = (f"flash_attn-2.8.3+rocm64torch2.9triton{build}-py3-none-any.whl" for build in builds)
    rows = [plain_row(name, cell=TRITON) for name in names]
    matrix, cell = second_build(MATRIX), Cell.parse(TRITON)
    assert next_replacements([*rows, plain_row()], matrix) == {TRITON: number}
    assert matrix.build_tag(cell, number) == f"2{'abcdefghijklmnopqrstuvwxyz'[number - 1]}"
    assert MATRIX.build_tag(cell, 1) == "0a", "a release whose first build has no tag"


def test_a_cell_counts_as_published_with_a_wheel_of_its_current_build_only() -> None:
    older = plain_row("flash_attn-2.8.3+rocm64torch2.9triton-py3-none-any.whl", cell=TRITON)
    second, tenth = (
        plain_row(f"flash_attn-2.8.3+rocm64torch2.9triton-{number}-py3-none-any.whl", cell=TRITON) for number in (2, 10)
    )
    matrix = second_build(MATRIX)
    assert available_cells([older], matrix) == frozenset()
    assert available_cells([older, second], matrix) == available_cells([tenth], matrix) == {TRITON}
    assert (outdated_reason(older, matrix), outdated_reason(second, matrix)) == ("wrong numbers", "")
    assert outdated_reason(older, MATRIX) == "", "a release without build has one build"


def test_a_wheel_that_a_kept_one_could_replace_is_counted() -> None:
    loads = {"2.13.0": ("2.11", "2.12"), "2.12.1": ("2.10", "2.13"), "2.10.0": (), "2.11.0": ("2.10",)}
    rows = [
        plain_row(cell=CK.replace("torch2.9.1", f"torch{torch}"), other_torches=found) for torch, found in loads.items()
    ]
    assert count_foldable(rows) == 2, "2.11 and 2.12, so that nothing is left to serve 2.10"
    assert count_foldable(rows[1:]) == 1, "2.10"
    oldest = plain_row(cell=CK.replace("2.9.1", "2.10.0"), other_torches=("2.11", "2.12", "2.13"))
    assert count_foldable([rows[0], rows[1], oldest]) == 2, "the one that loads on the most torches is kept"
    other_python = plain_row(cell=CK.replace("2.9.1-cp311", "2.12.1-cp312"))
    assert count_foldable([rows[0], other_python]) == 0
