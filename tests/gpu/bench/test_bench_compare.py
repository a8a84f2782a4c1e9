"""Training reports are compared with a previous one, or followed over time, if they are comparable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from command_line import Cli
from gpu.bench.made_reports import CONFIG, MI300X, not_trained, trained, training_report
from wheelfactory.core.errors import BAD_INPUT, DONE, InputError
from wheelfactory.core.terminal import wrap_lines
from wheelfactory.gpu.bench.bench_text import change_text
from wheelfactory.gpu.bench.compare import (
    compare_training,
    require_common_implementation,
    require_comparable,
    trend_points,
)
from wheelfactory.gpu.bench.reports import TrainingReport
from wheelfactory.gpu.validation_report import Hardware


def worse(before: dict[str, Any], now: dict[str, Any], threshold: float = 5.0) -> set[str]:
    """The figures that are worse, of the one implementation."""
    old, new = training_report(trained("triton", **before)), training_report(trained("triton", **now))
    return {change.figure for change in compare_training(old, new, threshold) if change.is_worse}


def test_regressions_over_the_threshold_are_found() -> None:
    cases: list[tuple[dict[str, Any], dict[str, Any], set[str]]] = [
        ({"step_ms": 100}, {"step_ms": 100}, set()),  # the same
        ({"step_ms": 62}, {"step_ms": 62 * 1.05, "tokens_per_s": 1.0}, {"tokens_per_s"}),  # 5 % is not more
        ({"tokens_per_s": 1.0}, {"step_ms": 105.1, "tokens_per_s": 1.0}, {"median_step_ms"}),  # 5.1 %
        ({"step_ms": 100}, {"step_ms": 110}, {"median_step_ms", "tokens_per_s"}),  # slower
        ({"step_ms": 100}, {"step_ms": 50}, set()),  # faster
        ({"peak_mib": 1000.0}, {"peak_mib": 1051.0}, {"peak_mib"}),  # more memory
        ({"peak_mib": 1000.0}, {"peak_mib": 500.0}, set()),  # less memory
        ({"peak_mib": None}, {"peak_mib": None}, set()),  # memory not measured
        ({"loss_first": 7.0}, {"loss_first": 7.009}, set()),  # first loss rounded
        ({"loss_first": 7.0}, {"loss_first": 6.98}, {"loss_first"}),  # first loss differs
        ({"loss_last": 5.0}, {"loss_last": 5.09}, set()),  # last loss near
        ({"loss_last": 5.0}, {"loss_last": 4.8}, {"loss_last"}),  # last loss differs
    ]
    for before, now, found in cases:
        assert worse(before, now) == found


def test_a_lost_implementation_is_worse_and_an_unrequested_one_is_ignored() -> None:
    old = training_report(trained("ck"), trained("triton"), not_trained("fallback"), trained("sdpa"))
    new = training_report(not_trained("ck"), trained("triton"), trained("fallback"))

    changes = compare_training(old, new, 5.0)

    assert [(change.implementation, change.now) for change in changes if change.is_worse] == [("ck", "not run")]
    assert {change.implementation for change in changes} == {"ck", "triton"}


def test_reports_of_other_implementations_have_nothing_to_compare() -> None:
    old = training_report(trained("ck"), not_trained("triton"))
    with pytest.raises(InputError, match=r"^nothing to compare: the old report measured: ck"):
        require_common_implementation(old, ("triton", "sdpa"))
    require_common_implementation(old, ("triton", "ck"))


def test_the_table_shows_each_change_in_percent() -> None:
    old, new = training_report(trained("triton", 100.0)), training_report(trained("triton", 125.0))
    lines = wrap_lines(change_text("old.json", compare_training(old, new, 5.0), 5.0))
    assert [line.split() for line in lines if "median step ms" in line] == [
        ["FA3", "(triton)", "median", "step", "ms", "100", "125", "+25.0", "%", "worse"]
    ]
    assert (lines[0], lines[-1]) == ("compared with old.json:", "2 worse")


def test_other_sizes_and_hardware_are_refused_with_the_difference() -> None:
    cases: list[tuple[dict[str, Any], dict[str, Any], str]] = [
        ({"seq_len": 2048, "n_layers": 6}, {}, "seq_len 4096 there, 2048 here; n_layers 8"),  # size
        ({"autotune": True}, {}, "autotune False there, True here"),  # option
        ({"foreign_gpu": True}, {}, "foreign_gpu False there, True here"),  # test mode
        ({}, {"device": "AMD Instinct MI325X"}, "device AMD Instinct MI300X there, AMD Inst"),  # device
        ({}, dict.fromkeys(("vendor", "device", "arch")), "vendor amd there, None here"),  # no GPU
    ]
    for config, hardware, which in cases:
        old = training_report(trained("triton"))
        with pytest.raises(InputError, match=r"^cannot compare these reports: old.json: ") as caught:
            require_comparable(
                "old.json", old, CONFIG.model_copy(update=config), Hardware(**{**MI300X.model_dump(), **hardware})
            )
        assert which in caught.value.which


def written(path: Path, report: TrainingReport) -> Path:
    path.write_text(report.model_dump_json())
    return path


def test_each_implementation_is_followed_from_report_to_report_whatever_their_order() -> None:
    reports = {
        "d": training_report(trained("ck", 99.0), day=23),
        "c": training_report(trained("ck", 90.0), trained("triton", 66.0), day=22),
        "a": training_report(trained("ck", 100.0), day=20),
        "b": training_report(not_trained("ck"), trained("triton", 60.0), day=21),
    }
    points = [(point.report.time.day, point.name, point.step_ms, point.percent) for point in trend_points(reports)]
    assert points == [
        (20, "ck", 100.0, None),
        (21, "triton", 60.0, None),
        (22, "ck", 90.0, -10.0),
        (22, "triton", 66.0, 10.0),
        (23, "ck", 99.0, 10.0),
    ]


def test_a_trend_of_reports_without_a_measurement_is_refused() -> None:
    with pytest.raises(InputError, match=r"no measurement to compare: a\.json"):
        trend_points({"a.json": training_report(not_trained("ck"))})


def test_the_table_and_the_plot_are_made(cli: Cli, tmp_path: Path) -> None:
    new = written(tmp_path / "new.json", training_report(trained("triton", 110.0), day=21))
    old = written(tmp_path / "old.json", training_report(trained("triton", 100.0), day=20))
    shown = cli("bench", "trend", new, old, "--plot", "trend.svg")
    assert (shown.code, shown.err) == (DONE, "")
    rows = [line.split() for line in shown.out.splitlines()[1:]]
    assert [(row[0], row[-2:]) for row in rows] == [("2026-11-20", ["20,000", "-"]), ("2026-11-21", ["+10.0", "%"])]
    assert "median step (ms)" in (tmp_path / "trend.svg").read_text()


def test_reports_of_other_sizes_are_refused(cli: Cli, tmp_path: Path) -> None:
    small = CONFIG.model_copy(update={"batch_size": 1})
    old = written(tmp_path / "old.json", training_report(trained("triton"), day=20, config=small))
    new = written(tmp_path / "new.json", training_report(trained("triton"), day=21))
    shown = cli("bench", "trend", new, old, "--plot", "trend.svg")
    assert (shown.code, shown.out) == (BAD_INPUT, "")
    assert f"error: cannot compare these reports: {old}: batch_size 1 there, 4 here\n" in shown.err
    assert not (tmp_path / "trend.svg").exists()
