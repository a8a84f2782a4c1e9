"""Plots, parsed like a viewer does: each implementation has its line, and the axes have labels."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest

from command_line import Cli
from gpu.bench.made_reports import attention_report, timed, trained, training_report
from wheelfactory.core.errors import BAD_INPUT
from wheelfactory.gpu.bench import plot
from wheelfactory.gpu.bench.compare import trend_points
from wheelfactory.gpu.bench.plot import plot_attention, plot_trend
from wheelfactory.gpu.bench.reports import AttentionReport, AttentionRow

pytestmark = pytest.mark.slow

SVG = "{http://www.w3.org/2000/svg}"

ON_GPU = attention_report(
    *(timed(name, seqlen, seqlen / 100, seqlen / 64) for name, seqlen in product(("sdpa", "plain"), (128, 256, 512))),
    AttentionRow(implementation="flash-attn", seqlen=128, status="not run", reason="not installed"),
)


def svg_of(tmp_path: Path, report: AttentionReport) -> Xml.Element:
    plot_attention(report, [tmp_path / "plot.svg"])
    return read(tmp_path / "plot.svg")


def read(path: Path) -> Xml.Element:
    return Xml.fromstring(path.read_text())  # noqa: S314 # it was just drawn


def texts(root: Xml.Element) -> list[str]:
    return ["".join(node.itertext()).strip() for node in root.iter(f"{SVG}text")]


def lines(root: Xml.Element) -> dict[str, int]:
    """The lines, by name, and how many points each joins or marks."""
    groups = {node.get("id", ""): node for node in root.iter(f"{SVG}g")}
    return {
        name: len(list(group.iter(f"{SVG}use")))
        for name, group in groups.items()
        if name.startswith(("ms-", "tflops-", "extra_mib-", "step-"))
    }


def test_time_arithmetic_and_memory_have_a_panel_each_and_each_implementation_a_line_in_all(tmp_path: Path) -> None:
    root = svg_of(tmp_path, ON_GPU)
    assert lines(root) == {
        f"{panel}-{name}": 3 for panel in ("ms", "tflops", "extra_mib") for name in ("sdpa", "plain")
    }
    found = texts(root)
    assert found.count("sequence length (tokens)") == 3
    assert "median of 15, band: p10 to p90" in found
    assert {"time of a call (ms)", "TFLOP/s", "extra memory (MiB)", "128", "256", "512", "sdpa", "plain"} <= set(found)
    assert "flash-attn" not in found
    assert not any("test mode" in text for text in found)
    assert any(text.startswith("Attention on AMD Instinct MI300X (gfx942), float16") for text in found)
    assert {"band-sdpa", "band-plain"} <= {node.get("id") for node in root.iter(f"{SVG}g")}


def test_the_title_and_the_axis_name_the_preset(tmp_path: Path) -> None:
    rows = (timed(name, 128, 1.0) for name in ("flex", "varlen"))
    packed = attention_report(*rows, config=ON_GPU.config.model_copy(update={"preset": "varlen"}))
    root = svg_of(tmp_path, packed)
    assert lines(root) == {f"{panel}-{name}": 1 for panel in ("ms", "tflops") for name in ("flex", "varlen")}, (
        "no panel for memory, which was not measured"
    )
    found = texts(root)
    assert "longest sequence (tokens)" in found
    assert any("head dim 64, packed sequences of 1/64 of the length to the length, causal" in text for text in found)


def test_a_report_of_the_test_mode_in_which_nothing_is_measured_makes_a_marked_plot_without_lines(
    tmp_path: Path,
) -> None:
    row = AttentionRow(implementation="flash-attn", seqlen=128, status="not run", reason="why")
    root = svg_of(tmp_path, attention_report(row, dropped_launch_options=("waves_per_eu",)))
    assert lines(root) == {}
    assert any("test mode: non-AMD GPU" in text for text in texts(root))


def test_a_png_is_a_picture_with_something_on_it_and_an_svg_has_the_same_bytes_each_time(tmp_path: Path) -> None:
    plot_attention(ON_GPU, [tmp_path / "plot.png", tmp_path / "one.svg"])
    plot_attention(ON_GPU, [tmp_path / "two.svg"])
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    from matplotlib.image import imread  # takes a second, which collecting the tests need not spend

    picture = imread(tmp_path / "plot.png")
    assert picture.shape == (675, 2250, 4)
    coloured = (abs(picture[..., 0] - picture[..., 2]) > 0.3).sum()  # the lines are in colours, the rest in greys
    assert coloured > 500


def test_a_trend_is_a_line_over_time_for_each_implementation(tmp_path: Path) -> None:
    reports = {
        "old": training_report(trained("ck", 100.0), trained("triton", 80.0), day=20),
        "new": training_report(trained("ck", 100.0), trained("triton", 70.0), day=21),
    }
    plot_trend(trend_points(reports), reports["new"], [tmp_path / "trend.svg"])
    root = read(tmp_path / "trend.svg")
    assert lines(root) == {"step-ck": 2, "step-triton": 2}
    assert {"time of the report (UTC)", "median step (ms)", "FA2 (ck)", "FA3 (triton)"} <= set(texts(root))


def test_the_axis_of_a_single_report_is_its_day(tmp_path: Path) -> None:
    report = training_report(trained("ck", 100.0), day=20)
    plot_trend(trend_points({"only": report}), report, [tmp_path / "trend.svg"])
    hours = [text for text in texts(read(tmp_path / "trend.svg")) if re.fullmatch(r"\d\d:00", text)]
    assert len(hours) >= 4


@pytest.mark.parametrize("command", [("attention", "--seqlens", "128"), ("trend", "absent.json")])
def test_without_matplotlib_a_plot_is_refused_before_anything_is_done(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setattr(plot, "find_spec", lambda name: None)
    python = ("--python", "absent") if command[0] == "attention" else ()
    shown = cli("bench", *command, *python, "--plot", "plot.svg")
    assert (shown.code, shown.out) == (BAD_INPUT, "")
    first, second = shown.err.splitlines()
    assert first.startswith("error: matplotlib is missing: ")
    assert second.startswith("hint: ")
    assert second.endswith("-m pip install matplotlib")


def test_an_invalid_plot_file_is_refused(cli: Cli) -> None:
    shown = cli("bench", "attention", "--python", "absent", "--plot", "plot.pdf")
    assert shown.code == BAD_INPUT
    assert "error: bad arguments: argument --plot: not the name of a .png or .svg" in shown.err
