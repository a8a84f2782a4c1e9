"""The report of a site check: failures and missing checks come first, and no missing check reads as passed."""

from __future__ import annotations

from wheelfactory.site.check.report import Checked, has_drift, report_lines
from wheelfactory.verify.result import Finding, GateResult

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
        "",
        "https://me.github.io/wheels/",
        "  passed   manifest (2 rows)",
        "",
        TITLE,
        "  passed   row",
        "  not run  attestation (sigstore is missing)",
    ]


def test_each_failure_is_one_line_with_wheel_step_and_reason() -> None:
    checked = [SITE, Checked(WHEEL, TITLE, (failed("import after uv", WHEEL), failed("installed by pip", "a.py")))]
    assert has_drift(checked)
    assert list(report_lines(checked))[:3] == [
        "https://me.github.io/wheels/: drift, 2 failures; 1 wheel in the sample",
        f"failed: {WHEEL}: import after uv: expected a, found b (c)",
        f"failed: {WHEEL}: installed by pip: a.py: expected a, found b (c)",
    ]


def test_a_site_without_a_wheel_to_install_says_so() -> None:
    lines = list(report_lines([SITE]))
    assert lines[1] == "not run: installs: the site has no verified wheel of a cell in matrix.yaml"
