"""What the page of GPU measurements shows is what the archived reports say, as the commands print it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from docs.pages import Page
from wheelfactory.core.files import ROOT
from wheelfactory.core.terminal import wrap_lines
from wheelfactory.gpu.bench.bench_text import attention_text, training_text
from wheelfactory.gpu.bench.reports import AttentionReport, read_report
from wheelfactory.gpu.validate.report import read_validation
from wheelfactory.gpu.validate.validation_text import validation_lines

PATH = "docs/explanation/measured-on-a-gpu.md"
PAGE = Page(PATH)
MEASURED = ROOT / "docs/measured"

BLOCKS = [
    (name, kind == "report", block.text.splitlines())
    for block in PAGE.blocks
    for kind in ("report", "lines of report")
    if (name := block.mark(kind))
]


def printed(path: Path) -> list[str]:
    """What the command prints that made this report."""
    if "validation" in json.loads(path.read_bytes())["format"]:
        return list(validation_lines(read_validation(path)))
    report = read_report(path)
    return wrap_lines(attention_text(report) if isinstance(report, AttentionReport) else training_text(report))


def test_the_page_shows_what_the_reports_say() -> None:
    for name, whole, shown in BLOCKS:
        lines = printed(MEASURED / name)
        assert shown == (lines if whole else [line for line in lines if line in shown]), name


def test_every_archived_report_is_of_a_gpu_that_the_page_names() -> None:
    reports = {path.name: json.loads(path.read_bytes()) for path in MEASURED.iterdir()}
    assert set(re.findall(r"\(../measured/([^)]+)\)", PAGE.text)) == reports.keys()
    devices = {report["hardware"]["device"] for report in reports.values()}
    assert devices == {"NVIDIA H200", "NVIDIA H100 80GB HBM3"}
    assert all(device in PAGE.text for device in devices)
    assert not re.search(r"verified on (gfx|AMD)", PAGE.text)


@pytest.mark.parametrize("name", ["nvidia-h200-validate.json", "nvidia-h100-preview-validate.json"])
def test_the_greatest_errors_of_the_page_are_those_of_the_report(name: str) -> None:
    errors: dict[tuple[str, str], tuple[float, float]] = {}
    for case in read_validation(MEASURED / name).cases:
        for error in case.errors:
            key = case.name.rpartition(" ")[2], error.result
            greatest, nearest = errors.get(key, (0.0, 0.0))
            errors[key] = max(greatest, error.error), max(nearest, error.error / error.bound)
    for dtype in ("float16", "bfloat16"):
        found = {result: of for (kind, result), of in errors.items() if kind == dtype}
        shown = [f"{found[result][0]:.1e}".replace("e-0", "e-") for result in ("output", "dq", "dk", "dv")]
        nearest = max(share for _, share in found.values())
        assert f"| {dtype} | {' | '.join(shown)} | {nearest:.0%} |".replace("%", " %") in PAGE.text
