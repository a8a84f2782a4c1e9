"""`ci check` installs with real pip and real uv from a site on loopback: each defect is one line, and exit code 3."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

from command_line import Cli, CommandResult
from loopback import served
from published_site import FALLBACK_FILE, make_torch_index, publish_cells, write_matrix_of_this_python
from release_factory import PYTHON_TAG, flash_attn_wheel
from wheelfactory.build.environments import Environment
from wheelfactory.core.cell import Cell
from wheelfactory.core.errors import VERIFICATION_FAILED, BuildError, InputError
from wheelfactory.release.manifest import read_manifest
from wheelfactory.release.published_site import read_site
from wheelfactory.site import check_installs
from wheelfactory.site.check_installs import InstallSource, check_install, install_commands, install_environ, require_uv
from wheelfactory.site.check_sample import SampledWheel
from wheelfactory.site.index import install_templates
from wheelfactory.verify.result import Status

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
    return InstallSource(read_site(str(release)), "https://a.example/b", {"7.2": "https://torch.example/rocm7.2"})


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
    results = check_install(sampled(release, BROKEN), source_of(release), tmp_path / "cache", {})
    return {one.gate: one.findings[0].found for one in results if one.status is Status.FAILED}


def test_what_is_missing_or_replaced_after_an_install_is_drift_and_so_is_a_python_that_is_missing(
    release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda = SimpleNamespace(version="2.12.1+cu128")
    monkeypatch.setattr(check_installs, "make_python_environment", lambda folder, version, environ: Environment(folder))
    monkeypatch.setattr(check_installs, "run", lambda *_, **__: SimpleNamespace(returncode=0, stdout="", stderr=""))
    other = SimpleNamespace(distributions=lambda name: iter([cuda]))
    monkeypatch.setattr(check_installs, "find_packages", lambda *_: other)
    steps = ("install with pip", "install with uv")
    assert results_with(release, tmp_path) == dict.fromkeys(steps, "torch 2.12.1+cu128")

    torch = SimpleNamespace(version="2.12.1+rocm7.2")
    alone = SimpleNamespace(distributions=lambda name: iter([torch] if name == "torch" else []))
    monkeypatch.setattr(check_installs, "find_packages", lambda *_: alone)
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
