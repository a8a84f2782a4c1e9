"""The data of the search page: every combination of the matrix has a wheel, is missing, or has its reason."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from release_factory import quick_gates
from search_rows import example_rows, many_rows, row_of
from small_matrix import small_matrix
from validations import amd_validation, nvidia_validation, with_evidence
from wheelfactory.core.cell import Cell
from wheelfactory.core.gpus import gpu_products
from wheelfactory.core.strict import read_record
from wheelfactory.core.support import Answer, SupportTables
from wheelfactory.matrix.expand import expand
from wheelfactory.matrix.facts import Matrix
from wheelfactory.matrix.load import load_matrix
from wheelfactory.matrix.rules import AXES
from wheelfactory.release.manifest import WheelRow
from wheelfactory.site.markdown import size_text
from wheelfactory.site.site import Site
from wheelfactory.verify.result import GateResult, Status

SMALL = small_matrix()
CK = Cell.parse("fa2.8.3-rocm6.4-torch2.9.1-cp311-ck")
TRITON = Cell.parse("fa2.8.3-rocm6.4-torch2.9.1-py3-triton")


@pytest.fixture(scope="module")
def whole_matrix() -> Matrix:
    return load_matrix(Path(__file__).parents[3] / "matrix.yaml")


def read(matrix: Matrix, rows: Sequence[WheelRow] = (), *, docs: bool = False) -> dict[str, Any]:
    """The data as the script holds it."""
    script = Site(matrix, rows, has_docs=docs).search_page_files()["search/data.js"].decode("ascii")
    start = "globalThis.wheelfactoryData = "
    assert script.startswith(start)
    assert script.endswith(";\n")
    before, wheels, after = re.split('(?<="wheels":)`([^`]*)`', script[len(start) : -2])
    data: dict[str, Any] = json.loads(f"{before}{json.dumps(wheels)}{after}")
    return data


def wheel(data: dict[str, Any], number: int = 0) -> dict[str, Any]:
    """A wheel as a dict, with references resolved."""
    kind, tags, build, size, date, digest = data["wheels"].splitlines()[number].split(" ")
    positions = zip(data["shared"].items(), data["kinds"][int(kind)], strict=True)
    found = {name: values[position] for (name, values), position in positions}
    found["python"], found["pythons"], tag = data["tags"][int(tags)]
    found["file"] = "-".join(filter(None, ("flash_attn", found["version"], build))) + tag
    found["sha256"] = b64decode(f"{digest}=").hex()
    return {**found, "size": data["sizes"][int(size)], "published": data["dates"][int(date)]}


def tables_of(data: dict[str, Any]) -> SupportTables:
    """The rules as the page has them."""
    return read_record(SupportTables, data["support"])


def test_every_combination_of_matrix_yaml_has_the_reason_of_expand(whole_matrix: Matrix) -> None:
    tables = tables_of(read(whole_matrix))
    expansion = expand(whole_matrix)
    reasons = {item.combination: item.reason for item in expansion.excluded if not item.amd_torch}
    axes = (whole_matrix.flash_attn, whole_matrix.python, whole_matrix.torch, whole_matrix.rocm, whole_matrix.backend)
    combinations = list(product(*axes))
    built = {cell: pythons for cell, pythons in expansion.pythons.items() if not cell.amd_torch}
    assert len(combinations) == len(reasons) + sum(map(len, built.values()))
    for combination in combinations:
        support = tables.find_support(dict(zip(AXES, map(str, combination), strict=True)))
        if support.answer is Answer.MAY_WORK:  # a preview, and no reason against it
            assert combination not in reasons
        else:
            assert (support.reasons or ("",))[0] == reasons.get(combination, "")


def test_every_gpu_of_every_cell_works_or_has_a_reason(whole_matrix: Matrix) -> None:
    tables = tables_of(read(whole_matrix))
    # the tables are about PyTorch's torch
    for cell, (python, *_) in (item for item in expand(whole_matrix).pythons.items() if not item[0].amd_torch):
        point = {"flash-attn": cell.flash_attn, "python": python, "torch": cell.torch, "rocm": cell.rocm}
        for arch in tables.axes["gpu"]:
            support = tables.find_support({**point, "backend": str(cell.backend), "gpu": arch})
            promised = arch in whole_matrix.archs(cell)
            assert (support.answer is Answer.WORKS) == (promised and not cell.commit), f"{cell.id} {arch}"
            assert not (promised and support.answer is Answer.DOES_NOT_WORK), f"{cell.id} {arch}"
            assert bool(support.reasons) == (support.answer is not Answer.WORKS)


def test_published_and_missing_cells_are_those_of_the_matrix(whole_matrix: Matrix) -> None:
    rows = example_rows(whole_matrix)
    squares = read(whole_matrix, rows)["coverage"]
    published, unverified, yanked, missing, left_out = (
        sum(square[place] for square in squares) for place in (3, 4, 5, 6, 7)
    )
    assert unverified == left_out == 0
    assert (published, yanked) == (sum(row.yanked is None for row in rows), sum(row.yanked is not None for row in rows))
    assert published + yanked + missing == len(expand(whole_matrix).cells)


def test_without_any_ck_wheel_the_squares_of_ck_need_a_runner() -> None:
    data = read(SMALL, [row_of(SMALL, TRITON)])
    numbers = {backend: [0] * 5 for backend in ("ck", "triton")}
    for square in data["coverage"]:
        numbers[square[0]] = [one + other for one, other in zip(numbers[square[0]], square[3:8], strict=True)]
    assert numbers == {"ck": [0, 0, 0, 0, 4], "triton": [1, 0, 0, 0, 0]}
    assert data["runner"]["backends"] == ["ck"]
    assert read(SMALL, [row_of(SMALL, CK)])["runner"]["backends"] == []


def test_each_square_of_the_coverage_names_its_reasons(whole_matrix: Matrix) -> None:
    data = read(whole_matrix)
    square = next(square for square in data["coverage"] if square[:3] == ["ck", "7.14", "2.14.1"])
    assert square[3:8] == [0, 0, 0, 0, 0]
    reasons = {data["texts"][text].partition(",")[0]: number for text, number in square[8]}
    assert sum(reasons.values()) == len(whole_matrix.flash_attn) * len(whole_matrix.python)
    assert min(reasons.values()) == len(whole_matrix.python), "the preview alone has another reason"


def test_axes_are_in_the_order_of_the_matrix_and_all_gpus_known_by_name_can_be_chosen_older_ones_first() -> None:
    data = read(SMALL)
    axes = data["support"]["axes"]
    assert (axes["rocm"], axes["torch"]) == (["6.4", "6.2"], ["2.9.1", "2.5.1"])
    assert (axes["python"], axes["backend"]) == (["3.12", "3.11"], ["ck", "triton"])
    assert set(gpu_products()) <= set(axes["gpu"])
    assert axes["gpu"].index("gfx90a") < axes["gpu"].index("gfx942") < axes["gpu"].index("gfx1030")
    assert data["products"]["gfx1201"] == list(gpu_products()["gfx1201"])


def test_a_wheel_has_the_facts_for_choosing_it() -> None:
    row = row_of(SMALL, CK, offload_archs=("gfx90a:xnack-", "gfx942"))
    found = wheel(read(SMALL, [row]))
    assert [found[name] for name in ("file", "sha256")] == [row.filename, row.sha256]
    assert (found["size"], found["published"]) == (size_text(row.size), f"{row.published:%Y-%m-%d}")
    assert found["version"] == "2.8.3+rocm64torch2.9"
    assert [found[axis] for axis in ("flash-attn", "rocm", "torch", "backend")] == ["2.8.3", "6.4", "2.9.1", "ck"]
    assert (found["python"], found["pythons"], found["archs"]) == ("3.11", ["3.11"], ["gfx90a", "gfx942"])
    assert found["glibc"] == "2.28"
    assert found["index"] == "simple/rocm64/torch2.9/ck"


def test_a_replacement_comes_before_what_it_replaces_and_has_its_build_tag() -> None:
    old = row_of(SMALL, CK, build=1)
    new = old.model_copy(update={"filename": old.filename.replace("-1-cp311", "-1a-cp311")})
    data = read(SMALL, [old, new])
    assert [wheel(data, number)["file"] for number in (0, 1)] == [new.filename, old.filename]
    assert data["wheels"].split(" ")[2] == "1a"


def test_the_page_is_given_the_lines_that_install_with_places_for_the_values_of_a_wheel() -> None:
    lines = read(SMALL)["lines"]
    for tool, program, option in (("pip", "pip", "--index-url"), ("uv", "uv pip", "--default-index")):
        assert lines[tool] == [
            f"{program} install torch=={{torch}}+rocm{{rocm}} {option} {{torch-index}}",
            f"{program} install {option} {{index}} flash-attn=={{version}}",
        ]
    assert 'dependencies = ["flash-attn=={version}", "torch=={torch}", "{triton}"]' in lines["pyproject.toml"][0]


def test_a_triton_wheel_is_for_the_pythons_of_its_cell_and_one_without_a_cell_for_those_of_its_tags() -> None:
    found = wheel(read(SMALL, [row_of(SMALL, TRITON)]))
    assert (found["python"], found["pythons"]) == ("3", ["3.12", "3.11"])
    gone = row_of(SMALL, CK, cell="fa2.8.3-rocm6.4-torch2.9.1-cp310-ck")
    gone = gone.model_copy(update={"filename": gone.filename.replace("cp311", "cp310")})
    anything = row_of(SMALL, TRITON, cell="fa2.8.3-rocm6.3-torch2.9.1-py3-triton", label="rocm63torch2.9triton")
    data = read(SMALL, [gone, anything])
    assert [wheel(data, number)["pythons"] for number in (0, 1)] == [["3.10"], []]


def test_checks_that_did_not_pass_say_why_and_the_square_of_an_unverified_wheel_counts_it() -> None:
    gates = (GateResult.from_findings("identity", [], "the cell"), GateResult.not_run("gpu", "no GPU is visible"))
    found = wheel(read(SMALL, [row_of(SMALL, CK, gates=gates)]))
    assert found["checks"] == [["identity", "passed"], ["gpu", str(Status.NOT_RUN), "no GPU is visible"]]
    data = read(SMALL, [row_of(SMALL, TRITON, gates=quick_gates(TRITON.id)), row_of(SMALL, CK)])
    unverified = {one["backend"]: one["unverified"] for one in map(partial(wheel, data), range(2))}
    assert unverified == {"ck": "", "triton": "not checked: numbers"}
    squares = {square[0]: square[3:5] for square in data["coverage"] if square[3]}
    assert squares == {"ck": [1, 0], "triton": [1, 1]}


def test_a_wheel_has_the_archs_it_is_verified_on_and_a_line_for_each_gpu_that_ran_it() -> None:
    emulated = GateResult.from_findings("code-objects", [], figures={"gfx942 executed": 412, "gfx942 kernels": 2887})
    on_gpus = with_evidence(row_of(SMALL, TRITON), nvidia_validation(), amd_validation())
    rows = [row_of(SMALL, CK, gates=(emulated,)), on_gpus]
    data = read(SMALL, rows)
    ran, none = sorted((wheel(data, number) for number in (0, 1)), key=lambda found: found["backend"], reverse=True)
    assert none["evidence"] == [[], [], ["412 of 2887 kernels executed by an emulator, for gfx942"]]
    archs, (verified_line, foreign_line), executed = ran["evidence"]
    assert (archs, executed) == (["gfx942"], [])
    assert verified_line.startswith("verified on gfx942 (AMD Instinct MI300X), torch 2.9.1+rocm6.4, 2026-11-22")
    assert foreign_line.startswith("numbers computed on NVIDIA H200 in the non-AMD GPU test mode")


def test_the_address_of_a_wheel_is_its_base_and_its_name_or_kept_whole() -> None:
    name = row_of(SMALL, CK).filename.replace("+", "%2B")
    whole = "https://example.org/download?id=7"
    bases = {None: "wheels/", f"https://example.org/v1/{name}": "https://example.org/v1/", whole: [whole]}
    assert {url: wheel(read(SMALL, [row_of(SMALL, CK, url=url)]))["base"] for url in bases} == bases


def test_wheels_come_in_the_doctors_order_and_dependencies_are_left_out() -> None:
    older = Cell.parse("fa2.6.3-rocm6.2-torch2.5.1-cp311-ck")
    einops = row_of(SMALL, CK, cell=None, label=None, project="einops")
    data = read(SMALL, [row_of(SMALL, older), einops, row_of(SMALL, CK)])
    assert [wheel(data, number)["rocm"] for number in range(len(data["wheels"].splitlines()))] == ["6.4", "6.2"]


def test_wheel_requests_go_to_the_repository_with_most_wheels() -> None:
    def form(url: str | None) -> str | None:
        found: str | None = read(SMALL, [row_of(SMALL, CK, url=url)])["request"]
        return found

    home = "https://github.com/OWNER/REPO"
    assert form(f"{home}/releases/download/v1/x.whl") == f"{home}/issues/new?template=wheel-request.yml"
    assert form("https://example.org/releases/download/v1/x.whl") is form(None) is None


def test_the_same_rows_in_another_order_give_the_same_bytes_and_hostile_text_stays_ascii_json() -> None:
    rows = [row_of(SMALL, cell) for cell in expand(SMALL).cells]
    assert Site(SMALL, rows).search_page_files() == Site(SMALL, rows[::-1]).search_page_files()
    reason = "</script><img src=x onerror=alert(1)> \u2028 \N{RIGHT-TO-LEFT OVERRIDE}"
    assert wheel(read(SMALL, [row_of(SMALL, CK, yanked=reason)]))["yanked"] == reason


def test_the_page_loads_every_script_that_there_is_and_nothing_else() -> None:
    files = Site(SMALL, []).search_page_files()
    page = files["index.html"].decode()
    assert all(f'"{name}"' in page for name in set(files) - {"index.html"})
    assert page.count("<script") == sum(name.endswith(".js") for name in files)


def test_5000_wheels_load_in_ten_seconds_at_50_kb_a_second(whole_matrix: Matrix) -> None:
    files = Site(whole_matrix, many_rows(whole_matrix, 5000), has_docs=True).search_page_files()
    assert sum(map(len, files.values())) <= 10 * 50_000
