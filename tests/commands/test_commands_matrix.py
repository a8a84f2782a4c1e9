"""Supported versions and GPUs, as two tables."""

from __future__ import annotations

from small_matrix import AMD_TORCH, PREVIEW, small_matrix
from wheelfactory.commands.matrix import _amd_torches, _span, _torch, supported_tables
from wheelfactory.core.cell import Cell
from wheelfactory.core.gpus import product_names
from wheelfactory.matrix.expand import expand


def test_a_rocm_has_its_torches_and_pythons_and_a_gpu_its_backends() -> None:
    matrix = small_matrix(AMD_TORCH)
    assert supported_tables(matrix, expand(matrix)) == [
        "| ROCm | torch | AMD's torch (Python) | Python |",
        "| --- | --- | --- | --- |",
        "| 6.4 | 2.9.1 | 2.9.1 (3.11) | 3.11 to 3.12 |",
        "| 6.2 | 2.5.1 (CK only) | no | 3.11 |",
        "",
        "| arch | GPUs | ROCm for CK | ROCm for Triton |",
        "| --- | --- | --- | --- |",
        "| gfx90a | Instinct MI210, MI250, MI250X | 6.2 | no |",
        "| gfx942 | Instinct MI300A, MI300X, MI308X, MI325X | 6.2 to 6.4 | 6.4 |",
        f"| gfx1100 | {product_names('gfx1100')} | no | 6.4 |",
    ]


def test_a_preview_is_named_where_no_release_is() -> None:
    matrix = small_matrix(PREVIEW, ("torch: ['2.9.1']", "torch: ['2.9.1', '2.5.1']"))
    tables = supported_tables(matrix, expand(matrix))
    assert "| gfx942 | Instinct MI300A, MI300X, MI308X, MI325X | 6.2 to 6.4 | 6.4 |" in tables
    assert f"| gfx1100 | {product_names('gfx1100')} | preview: 6.4 | 6.4 |" in tables
    previews = [cell for cell in expand(matrix).cells if cell.commit]
    assert _torch("2.9.1", previews) == "2.9.1 (CK preview)"
    assert tables[-2:] == ["", "Preview: flash-attn 2.8.4 preview (commit 4a948e9), in indexes of its own."]


def test_neighbours_among_amds_torches_share_their_pythons_and_spans_have_no_gaps() -> None:
    own = {"2.10.0": ("3.12", "3.10"), "2.9.1": ("3.12", "3.10"), "2.8.0": ("3.12",)}
    ids = [f"fa2.8.3-rocm7.2-torch{torch}amd-cp{python.replace('.', '')}-ck" for torch in own for python in own[torch]]
    assert _amd_torches(map(Cell.parse, ids)) == "2.10.0, 2.9.1 (3.10, 3.12); 2.8.0 (3.12)"
    for among, expected in (
        (set(), "no"),
        ({"7.0"}, "7.0"),
        ({"6.4", "7.0"}, "6.4 to 7.0"),
        ({"6.4", "7.10"}, "6.4, 7.10"),
        ({"6.3", "6.4", "7.0", "7.10"}, "6.3 to 7.10"),
    ):
        assert _span(("7.10", "7.0", "6.4", "6.3"), among) == expected


def test_a_rocm_without_any_cell_is_shown_as_having_none() -> None:
    matrix = small_matrix(("torch: ['2.9.1']", "torch: ['2.4.0']"))
    assert "| 6.4 | no | no | no |" in supported_tables(matrix, expand(matrix))
