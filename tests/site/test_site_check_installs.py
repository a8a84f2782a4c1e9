"""The sample of wheels that a check of a site installs, and what each failure of an install is reported as."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping
from datetime import date, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from command_line import Cli, CommandResult
from loopback import served
from published_site import FALLBACK_FILE, make_torch_index, publish_cells, write_matrix_of_this_python
from release_factory import PYTHON_TAG, flash_attn_wheel, plain_row
from search_rows import FIRST, row_of
from wheelfactory.build.environments import Environment
from wheelfactory.core.cell import FALLBACK_NAME, Backend, Cell
from wheelfactory.core.errors import VERIFICATION_FAILED, BuildError, InputError
from wheelfactory.core.files import MATRIX
from wheelfactory.core.query import Interpreter
from wheelfactory.matrix.expand import expand
from wheelfactory.matrix.load import load_matrix
from wheelfactory.release.manifest import read_manifest
from wheelfactory.release.published_site import read_site
from wheelfactory.site import check_installs
from wheelfactory.site.check_installs import (
    InstallSource,
    SampledWheel,
    check_install,
    choose_sample,
    count_weeks,
    install_commands,
    install_environ,
    require_uv,
)
from wheelfactory.site.index import install_templates
from wheelfactory.verify.gates import required_gates
from wheelfactory.verify.result import GateResult, Status

LOADED = load_matrix(MATRIX)
PYTHONS = expand(LOADED).pythons
BUILT = [cell for cell in PYTHONS if cell.flash_attn == "2.8.3" and cell.rocm in ("7.2", "6.4")]
CELLS = [cell for cell in BUILT if not cell.amd_torch]
AMDS = [cell for cell in BUILT if cell.amd_torch]
FALLBACK = plain_row(
    "flash_attention_amd-0.1.0-py3-none-any.whl",
    project=FALLBACK_NAME,
    published=FIRST,
    gates=tuple(GateResult(gate=name, status=Status.PASSED) for name in required_gates(FALLBACK_NAME)),
)
EINOPS = plain_row(published=FIRST)
ROWS = (*(row_of(LOADED, cell) for cell in BUILT), FALLBACK, EINOPS)
NEVER = {EINOPS.filename, *(row_of(LOADED, cell).filename for cell in AMDS)}
"""A dependency, and wheels for AMD's own torch, which is on no index."""
NEWEST_CELL = next(cell for cell in CELLS if cell.backend is Backend.CK and cell.rocm == "6.4")
LATER = FIRST + timedelta(days=90)
NEW = tuple(row.model_copy(update={"published": LATER}) if row.cell == NEWEST_CELL.id else row for row in ROWS)
"""The rows after a release of one more wheel."""


def names(sample: tuple[SampledWheel, ...]) -> list[str]:
    return [wheel.row.filename for wheel in sample]


def kinds(sample: tuple[SampledWheel, ...]) -> list[str]:
    return [str(Cell.parse(wheel.row.cell).backend) if wheel.row.cell else wheel.row.project for wheel in sample]


def test_the_same_rows_number_and_week_give_the_same_sample_in_any_order_of_the_rows() -> None:
    first = choose_sample(ROWS, PYTHONS, 5, 7)
    assert choose_sample(tuple(reversed(ROWS)), PYTHONS, 5, 7) == first


@pytest.mark.parametrize("week", range(0, 60, 7))
def test_the_newest_wheel_comes_first_then_each_other_kind(week: int) -> None:
    sample = choose_sample(NEW, PYTHONS, 4, week)
    assert sample[0].row.cell == NEWEST_CELL.id
    assert kinds(sample) == ["ck", "triton", FALLBACK_NAME, "ck"]
    assert len(set(names(sample))) == 4


def test_a_wheel_is_installed_from_the_index_that_lists_it_else_from_that_of_the_newest() -> None:
    update = {"project": "flash-attn", "version": "2.6.3+fallback", "filename": "flash_attn-2.6.3+fallback.whl"}
    named = FALLBACK.model_copy(update=update)
    newest, *others = choose_sample((*NEW, named), PYTHONS, 5, 7)
    found = {wheel.row.filename: wheel.index for wheel in others}
    assert found[named.filename] == ("fallback",)
    assert found[FALLBACK.filename] == newest.index


def test_over_the_weeks_every_wheel_is_installed() -> None:
    samples = [choose_sample(NEW, PYTHONS, 5, week) for week in range(1000, 1000 + len(CELLS))]
    seen = Counter(name for sample in samples for name in names(sample))
    assert seen.keys() == {row.filename for row in NEW} - NEVER


def test_neighbours_in_a_sample_differ_in_rocm_or_torch() -> None:
    # 12 places: the newest, the fallback, and CK and Triton in turn
    sample = choose_sample(NEW, PYTHONS, 12, 3)
    for backend in ("ck", "triton"):
        pairs = [wheel.index[:2] for wheel, kind in zip(sample[1:], kinds(sample)[1:], strict=True) if kind == backend]
        assert len(pairs) == 5
        assert len(set(pairs)) == len(pairs)


def test_every_python_of_a_triton_wheel_gets_its_week() -> None:
    triton = next(cell for cell in CELLS if cell.backend is Backend.TRITON)
    samples = [choose_sample([row_of(LOADED, triton)], PYTHONS, 1, week) for week in range(10)]
    assert {wheel.python for (wheel,) in samples} == set(PYTHONS[triton])


def test_a_ck_wheel_is_installed_for_its_python_and_torch_and_the_fallback_with_those_of_the_newest() -> None:
    newest, _, fallback = choose_sample(NEW, PYTHONS, 3, 0)
    assert (newest.cell, newest.python) == (NEWEST_CELL, NEWEST_CELL.python)
    assert newest.index == ("rocm64", f"torch{NEWEST_CELL.torch.rpartition('.')[0]}", "ck")
    assert fallback.row == FALLBACK
    assert (fallback.cell, fallback.python, fallback.index) == (newest.cell, newest.python, newest.index)


@pytest.mark.parametrize(
    "change",
    [
        {"yanked": "wrong numbers"},
        {"gates": ()},  # unverified
        {"cell": None, "label": None},
        {"cell": NEWEST_CELL.id.replace("torch2", "torch1")},  # a torch that is not in the matrix
    ],
    ids=", ".join,
)
def test_what_no_user_should_install_is_never_chosen(change: dict[str, object]) -> None:
    rows = [row.model_copy(update=change) if row.published == LATER else row for row in NEW]
    chosen = {name for week in range(20) for name in names(choose_sample(rows, PYTHONS, 50, week))}
    (left_out,) = (row.filename for row in rows if row.published == LATER)
    assert chosen == {row.filename for row in rows} - NEVER - {left_out}


def test_no_more_wheels_than_there_are() -> None:
    few = (*NEW[:2], FALLBACK)
    assert sorted(names(choose_sample(few, PYTHONS, 9, 1))) == sorted(row.filename for row in few)
    assert choose_sample([FALLBACK, EINOPS], PYTHONS, 4, 1) == (), "no index lists them"


def test_weeks_begin_on_monday_and_go_on_over_the_new_year() -> None:
    monday = date.fromisocalendar(2026, 53, 1)
    assert count_weeks(monday) == count_weeks(monday + timedelta(days=6)) == count_weeks(monday - timedelta(days=1)) + 1
    assert count_weeks(date.fromisocalendar(2027, 1, 1)) == count_weeks(monday) + 1


TAMPERED = f"fa2.8.3-rocm6.4-torch2.9.1-{PYTHON_TAG}-ck"
LOST = "fa2.8.3-rocm6.4-torch2.9.1-py3-triton"
BROKEN = f"fa2.8.3-rocm7.2-torch2.12.1-{PYTHON_TAG}-ck"
PUBLISHED = {TAMPERED: "", LOST: "", BROKEN: "raise ImportError('undefined symbol: _ZN3c10')"}


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """A release with a wheel for each of `PUBLISHED`, einops and flash-attention-amd."""
    folder = tmp_path / "release"
    publish_cells(folder, PUBLISHED, fallback=True)
    return folder


def file_of(release: Path, cell: str) -> str:
    """The file name of the wheel of a cell."""
    return next(row.filename for row in read_manifest(release) if row.cell == cell)


@pytest.mark.slow
def test_each_defect_of_a_site_is_one_line_and_another_wheel_passes(cli: Cli, release: Path, tmp_path: Path) -> None:
    flash_attn_wheel(release / "wheels", TAMPERED, content="import evil")
    (release / "wheels" / file_of(release, LOST)).unlink()
    torch = make_torch_index(tmp_path / "torch-index", tuple(PUBLISHED))
    matrix = write_matrix_of_this_python(tmp_path / "small.yaml")
    with served(release) as site:
        options = ("--site", site.url, "--torch-index", torch, "--matrix", matrix, "--cache", tmp_path / "cache")
        shown: CommandResult = cli("ci", "check", release, *options, "--sample", "9", "--report", "report.txt")
    assert shown.code == VERIFICATION_FAILED, shown.err
    lines = shown.out.splitlines()
    tampered, lost, broken = (file_of(release, cell) for cell in (TAMPERED, LOST, BROKEN))
    failed = [line.removeprefix("failed: ") for line in lines if line.startswith("failed: ")]
    steps = [(name, step) for name, step, *_ in (line.split(": ") for line in failed)]
    assert steps[:3] == [(site.url, "files"), (site.url, "files"), (site.url, "cells")]
    assert sorted(steps[3:]) == sorted(
        [(name, f"install with {tool}") for name in (tampered, lost) for tool in ("pip", "uv")]
        + [(broken, f"import after {tool}") for tool in ("pip", "uv")]
    )
    reasons = dict(zip(steps, failed, strict=True))
    assert "DO NOT MATCH THE HASHES" in reasons[tampered, "install with pip"]
    assert "Hash mismatch" in reasons[tampered, "install with uv"]
    assert all("404" in reasons[lost, f"install with {tool}"] for tool in ("pip", "uv"))
    assert f"{LOST}: expected a wheel, found {lost}, yanked: its file was deleted" in reasons[site.url, "cells"]
    assert "found ImportError: undefined symbol: _ZN3c10 (" in reasons[broken, "import after uv"]
    assert lines[0] == f"{site.url}: drift, 9 failures; 4 wheels in the sample"
    fallback = shown.out[shown.out.index(f"\n{FALLBACK_FILE} (ROCm 7.2, ") :].partition("\n\n")[0]
    assert fallback.count("  passed   ") == 9
    unsigned = f"{site.url} is no site of a GitHub repository, which has no attestations"
    assert f"not run: {FALLBACK_FILE}: attestation: {unsigned}" in lines
    assert Path("report.txt").read_text() == shown.out
    assert list((tmp_path / "cache").glob(".*")) == [], "the environments are removed"


def sampled(release: Path, cell: str) -> SampledWheel:
    row = next(row for row in read_manifest(release) if row.cell == cell)
    assert row.index_key
    return SampledWheel(row, Cell.parse(cell), "3.12", row.index_key)


def source_of(release: Path) -> InstallSource:
    return InstallSource(read_site(str(release), {}), "https://a.example/b", {"7.2": "https://torch.example/rocm7.2"})


@pytest.mark.parametrize(("tool", "option"), [("pip", "--index-url"), ("uv", "--default-index")])
def test_the_commands_are_those_that_the_search_page_shows(release: Path, tool: str, option: str) -> None:
    wheel = sampled(release, BROKEN)
    torch, command = map(shlex.join, install_commands(tool, Path("/env/bin/python"), wheel, source_of(release)))
    _, line = install_templates()[tool]
    line = line.replace("{version}", wheel.row.version)
    line = line.replace("{index}", "https://a.example/b/simple/rocm72/torch2.12/ck/")
    assert command.split(" install ")[1].removeprefix("--python /env/bin/python ") == line.split(" install ")[1]
    assert torch.split(" install ")[1].endswith(f"torch==2.12.1+rocm7.2 {option} https://torch.example/rocm7.2")


def test_a_machine_without_uv_is_no_drift(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    require_uv({})
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    with pytest.raises(InputError, match="uv is missing"):
        require_uv({"PATH": str(tmp_path)})


def test_settings_and_tokens_of_this_machine_do_not_reach_the_installers(tmp_path: Path) -> None:
    own = dict.fromkeys(("PIP_INDEX_URL", "UV_INDEX", "PYTHONPATH", "VIRTUAL_ENV", "GITHUB_TOKEN"), "x")
    found = install_environ({**own, "HTTPS_PROXY": "p", "PIP_CERT": "c", "PATH": "/bin"}, tmp_path)
    assert not found.keys() & own.keys()
    assert (found["HTTPS_PROXY"], found["PIP_CERT"], found["TMPDIR"]) == ("p", "c", str(tmp_path))
    assert found["PATH"].endswith(":/bin"), "the uv of the factory comes first"
    assert {found[name] for name in ("PIP_NO_CACHE_DIR", "UV_NO_CACHE", "UV_NO_CONFIG")} == {"1"}


def results_with(release: Path, tmp_path: Path) -> Mapping[str, str]:
    """The failed steps of a check of a wheel, with what was found."""
    results = check_install(sampled(release, BROKEN), source_of(release), tmp_path / "cache")
    return {one.gate: one.findings[0].found for one in results if one.status is Status.FAILED}


def test_what_is_missing_or_replaced_after_an_install_is_drift_and_so_is_a_python_that_is_missing(
    release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda = SimpleNamespace(version="2.12.1+cu128")
    monkeypatch.setattr(check_installs, "make_python_environment", lambda folder, version, environ: Environment(folder))
    monkeypatch.setattr(check_installs, "run", lambda *_, **__: SimpleNamespace(returncode=0, stdout="", stderr=""))
    other = SimpleNamespace(distributions=lambda name: iter([cuda]))
    monkeypatch.setattr(Interpreter, "find_packages", lambda *_: other)
    steps = ("install with pip", "install with uv")
    assert results_with(release, tmp_path) == dict.fromkeys(steps, "torch 2.12.1+cu128")

    torch = SimpleNamespace(version="2.12.1+rocm7.2")
    alone = SimpleNamespace(distributions=lambda name: iter([torch] if name == "torch" else []))
    monkeypatch.setattr(Interpreter, "find_packages", lambda *_: alone)
    missing = {"installed by pip": "none", "installed by uv": "none"}
    assert missing.items() <= results_with(release, tmp_path).items()

    refused = SimpleNamespace(returncode=1, stdout="Looking in indexes\n", stderr="  \u00d7 No\n  \u2570 found\n")
    monkeypatch.setattr(check_installs, "run", lambda *_, **__: refused)
    steps = ("install torch with pip", "install torch with uv")
    assert results_with(release, tmp_path) == dict.fromkeys(steps, "\u00d7 No \u2570 found")

    def refuse(*_: object) -> Environment:
        raise BuildError("command failed", "uv venv: no download for Python 3.12", "install it")

    monkeypatch.setattr(check_installs, "make_python_environment", refuse)
    assert results_with(release, tmp_path) == {"environment": "command failed: uv venv: no download for Python 3.12"}
