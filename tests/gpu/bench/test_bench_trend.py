"""`wheelfactory bench trend`: archived trainings as a table and a plot, sorted by time."""

from __future__ import annotations

from pathlib import Path

from command_line import Cli
from gpu.bench.made_reports import CONFIG, not_trained, trained, training_report
from wheelfactory.core.errors import BAD_INPUT, DONE
from wheelfactory.gpu.bench.compare import trend_points
from wheelfactory.gpu.bench.reports import TrainingReport


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
