"""Reports are written as JSON and read back; other files are refused with the reason."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
from pydantic import ValidationError

from gpu.bench.made_reports import attention_report, not_trained, timed, trained, training_report
from wheelfactory.core.checkout import ROOT
from wheelfactory.core.errors import InputError
from wheelfactory.gpu.bench.reports import AttentionReport, TrainingReport, read_report, read_training_report

TRAINING = training_report(trained("triton"), not_trained("ck"))
ATTENTION = attention_report(timed("sdpa", 128, 1.0), timed("plain", 128, 2.0, 5.0))


def written(path: Path, report: AttentionReport | TrainingReport) -> Path:
    path.write_text(report.model_dump_json())
    return path


@pytest.mark.parametrize("report", [TRAINING, ATTENTION], ids=["training", "attention"])
def test_a_report_is_read_back_as_it_was(tmp_path: Path, report: AttentionReport | TrainingReport) -> None:
    assert read_report(written(tmp_path / "report.json", report)) == report


@pytest.mark.parametrize("report", [TRAINING, ATTENTION], ids=["training", "attention"])
def test_missing_measurements_are_null_in_standard_json(
    report: AttentionReport | TrainingReport,
) -> None:
    def refuse(name: str) -> NoReturn:
        raise AssertionError(name)

    found = json.loads(report.model_dump_json(), parse_constant=refuse)
    missing = found["results"][1]["median_step_ms"] if "results" in found else found["rows"][0]["extra_mib"]
    assert missing is None


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_reports_refuse_nan_and_infinity(number: float) -> None:
    with pytest.raises(ValidationError, match="finite"):
        trained("sdpa", loss_last=number)
    with pytest.raises(ValidationError, match="finite"):
        timed("sdpa", 128, number)


def changed(**other: Any) -> Callable[[dict[str, Any]], object]:
    return lambda found: found.update(other)


def test_a_damaged_report_is_refused_with_the_place(tmp_path: Path) -> None:
    cases: list[tuple[Callable[[dict[str, Any]], object], str]] = [
        (changed(format="wheelfactory-bench-training/2"), "does not match any of the expected"),  # form
        (lambda found: found.pop("format"), "Unable to extract tag"),  # no form
        (changed(time="2026-11-20T12:00:00"), "time: "),  # a time without zone
        (changed(speed=3), "speed: Extra inputs are not permitted"),  # more
        (lambda found: found["config"].pop("d_model"), "config.d_model: Field required"),  # less
        (lambda found: found["results"][0].update(peak_mib="lots"), "results.0.peak_mib: "),  # no number
    ]
    for damage, which in cases:
        found = json.loads(TRAINING.model_dump_json())
        damage(found)
        path = tmp_path / "report.json"
        path.write_text(json.dumps(found))
        with pytest.raises(InputError, match=r"^not a benchmark report: ") as caught:
            read_report(path)
        assert which in caught.value.which
        assert str(path) in caught.value.which
        assert "--output-json" in caught.value.hint


def test_other_files_are_refused_as_reports(tmp_path: Path) -> None:
    cases: list[str] = [
        "",
        "{",  # open
        "[]",  # list
        '"report"',  # text
        "[" * 100_000,  # deep
    ]
    for text in cases:
        path = tmp_path / "report.json"
        path.write_text(text)
        with pytest.raises(InputError, match=r"^not a benchmark report: "):
            read_report(path)


def test_a_missing_report_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^cannot read the report: .* \(No such file or directory\)$"):
        read_report(tmp_path / "absent.json")


def test_a_report_of_format_1_without_spread_is_read() -> None:
    old = read_report(ROOT / "docs/measured/nvidia-h200-attention.json")
    assert isinstance(old, AttentionReport)
    assert old.format == "wheelfactory-bench-attention/1"
    assert {(row.p10_ms, row.p90_ms, row.repetitions, row.tflops) for row in old.rows} == {(None,) * 4}


def test_a_report_from_before_the_presets_is_read(tmp_path: Path) -> None:
    old = json.loads(ATTENTION.model_dump_json())
    del old["config"]["preset"]
    (tmp_path / "report.json").write_text(json.dumps(old))
    assert read_report(tmp_path / "report.json") == ATTENTION


def test_an_attention_report_is_no_training_report(tmp_path: Path) -> None:
    path = written(tmp_path / "report.json", ATTENTION)
    with pytest.raises(InputError, match=r"^not a training report: .* has format wheelfactory-bench-attention/2"):
        read_training_report(path)
