"""`wheelfactory ci check`: what it expects, its errors and exit codes. Installs: test_site_check_installs.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from command_line import Cli
from loopback import served
from release_factory import flash_attn_wheel, make_release, stub_wheel
from wheelfactory.commands.ci.check import Checked, has_drift, report_lines
from wheelfactory.core.errors import BAD_INPUT, DONE, VERIFICATION_FAILED
from wheelfactory.core.published import MANIFEST_NAME
from wheelfactory.release.manifest import manifest_bytes, read_manifest
from wheelfactory.verify.result import Finding, GateResult

CELL = "fa2.8.3-rocm6.4-torch2.9.1-py3-triton"


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """A release directory whose only flash-attn wheel is yanked, so that no wheel is installed."""
    folder, made = tmp_path / "release", tmp_path / "made"
    make_release(folder, [flash_attn_wheel(made, CELL), stub_wheel(made, "einops", "0.8.2")])
    rows = [row.model_copy(update={"yanked": "old"} if row.cell else {}) for row in read_manifest(folder)]
    (folder / MANIFEST_NAME).write_bytes(manifest_bytes(rows))
    return folder


def test_a_stale_index_is_drift_and_the_report_has_all_that_is_printed(cli: Cli, release: Path, tmp_path: Path) -> None:
    shown = cli("ci", "check", release, "--cache", tmp_path / "cache", "--report", "report.txt")
    assert (shown.code, shown.err) == (VERIFICATION_FAILED, "")
    assert shown.out.splitlines()[0] == f"{release.as_uri()}: drift, 2 failures; 0 wheels in the sample"
    assert f"failed: {release.as_uri()}: cells: {CELL}: expected a wheel, found " in shown.out
    assert "not run: installs: " in shown.out
    assert Path("report.txt").read_text() == shown.out


def test_the_site_must_serve_the_expected_rows(cli: Cli, release: Path, tmp_path: Path) -> None:
    expected = tmp_path / "expected.jsonl"
    expected.write_bytes(manifest_bytes(read_manifest(release)[:1]))
    shown = cli("ci", "check", release, "--expect", expected, "--cache", tmp_path / "cache")
    assert "manifest: manifest.jsonl: expected only rows of published wheels, found a row for flash_attn-2.8.3" in (
        shown.out
    )


def test_a_target_without_wheels_is_not_checked_but_a_site_whose_releases_were_all_deleted_is_drift(
    cli: Cli, release: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    more = ("--cache", tmp_path / "cache", "--report", "report.txt")
    assert cli("ci", "check", "empty", *more) == (DONE, "", "not run: nothing is published in empty\n")
    assert not Path("report.txt").exists()
    shown = cli("ci", "check", "empty", "--site", release.as_uri(), *more)
    assert shown.code == VERIFICATION_FAILED
    assert "expected only rows of published wheels, found a row for flash_attn-2.8.3" in shown.out


def test_a_site_that_cannot_be_reached_is_an_error_of_its_own_and_in_the_report(
    cli: Cli, release: Path, tmp_path: Path
) -> None:
    with served(tmp_path) as site:
        address = site.url
    shown = cli("ci", "check", release, "--site", address, "--cache", tmp_path / "cache", "--report", "report.txt")
    assert (shown.code, shown.out) == (BAD_INPUT, "")
    assert shown.err.startswith(f"error: cannot read the manifest: {address}/manifest.jsonl (")
    assert Path("report.txt").read_text() == shown.err


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("nowhere",), "no such directory: nowhere"),
        (("manifest.jsonl",), "cannot determine the URL of the site: manifest.jsonl"),
        (("release", "--expect", "nowhere"), "no such manifest: nowhere"),
        (("release", "--sample", "0"), "bad arguments: argument --sample: "),
        (("release", "--wait", "61"), "bad arguments: argument --wait: "),
    ],
)
def test_a_mistake_is_one_error_line(
    cli: Cli, release: Path, tmp_path: Path, arguments: tuple[str, ...], error: str
) -> None:
    (tmp_path / "manifest.jsonl").write_bytes((release / MANIFEST_NAME).read_bytes())
    shown = cli("ci", "check", *arguments, "--cache", tmp_path / "cache")
    assert (shown.code, shown.out) == (BAD_INPUT, "")
    assert shown.err.startswith(f"error: {error}")
    assert shown.err.count("\n") == 2


WHEEL = "flash_attn-2.8.3+rocm64torch2.9triton-py3-none-any.whl"
TITLE = f"{WHEEL} (ROCm 6.4, torch 2.9.1, Python 3.12)"
PASSED = GateResult.from_findings("manifest", [], "2 rows")
SITE = Checked("https://me.github.io/wheels/", "https://me.github.io/wheels/", (PASSED,))


def failed(step: str, file: str) -> GateResult:
    return GateResult.from_findings(step, [Finding(file=file, expected="a", found="b", remedy="c")])


NOT_RUN = GateResult.not_run("attestation", "sigstore is missing").model_copy(update={"required": False})


def test_without_failures_there_is_no_drift_and_what_did_not_run_is_named() -> None:
    checked = [SITE, Checked(WHEEL, TITLE, (GateResult.from_findings("row", []), NOT_RUN))]
    assert not has_drift(checked)
    assert list(report_lines(checked)) == [
        "https://me.github.io/wheels/: no drift; 1 wheel in the sample",
        f"not run: {WHEEL}: attestation: sigstore is missing",
        *("", "https://me.github.io/wheels/", "  passed   manifest (2 rows)", ""),
        *(TITLE, "  passed   row", "  not run  attestation (sigstore is missing)"),
    ]
    without = list(report_lines([SITE]))
    assert without[1] == "not run: installs: the site has no verified wheel of a cell in matrix.yaml"


def test_each_failure_is_one_line_with_wheel_step_and_reason() -> None:
    checked = [SITE, Checked(WHEEL, TITLE, (failed("import after uv", WHEEL), failed("installed by pip", "a.py")))]
    assert has_drift(checked)
    assert list(report_lines(checked))[:3] == [
        "https://me.github.io/wheels/: drift, 2 failures; 1 wheel in the sample",
        f"failed: {WHEEL}: import after uv: expected a, found b (c)",
        f"failed: {WHEEL}: installed by pip: a.py: expected a, found b (c)",
    ]
