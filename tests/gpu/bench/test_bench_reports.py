"""Reports are written as JSON and read back; other files are refused with the reason."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpu.bench.made_reports import attention_report, not_trained, timed, trained, training_report
from wheelfactory.core.errors import InputError
from wheelfactory.core.terminal import wrap_lines
from wheelfactory.gpu.bench.bench_text import attention_text
from wheelfactory.gpu.bench.reports import (
    NOISE_LIMIT,
    AttentionReport,
    TrainingReport,
    attention_tflops,
    is_steady,
    percentiles,
    read_training_report,
    spread,
)

TRAINING = training_report(trained("triton"), not_trained("ck"))
ATTENTION = attention_report(timed("sdpa", 128, 1.0), timed("plain", 128, 2.0, 5.0))


def written(path: Path, report: AttentionReport | TrainingReport) -> Path:
    path.write_text(report.model_dump_json())
    return path


def test_a_report_is_read_back_as_it_was(tmp_path: Path) -> None:
    assert read_training_report(written(tmp_path / "report.json", TRAINING)) == TRAINING
    assert AttentionReport.model_validate_json(ATTENTION.model_dump_json()) == ATTENTION


def changed(**other: Any) -> Callable[[dict[str, Any]], object]:
    return lambda found: found.update(other)


def test_a_damaged_report_is_refused_with_the_place(tmp_path: Path) -> None:
    cases: list[tuple[Callable[[dict[str, Any]], object], str]] = [
        (changed(format="wheelfactory-bench-training/2"), "format: Input should be 'wheelfactory-bench-training/1'"),
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
        with pytest.raises(InputError, match=r"^not a training report: ") as caught:
            read_training_report(path)
        assert which in caught.value.which
        assert str(path) in caught.value.which
        assert "--output-json" in caught.value.hint


CONFIG = attention_report(timed("plain", 1024, 1.0)).config


def test_a_tenth_of_the_times_is_below_p10_and_a_tenth_above_p90() -> None:
    assert percentiles([float(number) for number in range(101)]) == (10.0, 90.0)
    assert percentiles([1.0, 2.0]) == pytest.approx((1.1, 1.9))
    assert percentiles([3.0]) == (3.0, 3.0)
    assert percentiles([]) == (None, None)


def test_the_spread_is_a_share_of_the_median_and_decides_what_is_steady() -> None:
    assert spread(timed("sdpa", 128, 4.0, noise=0.5)) == pytest.approx(0.5)
    assert is_steady(timed("sdpa", 128, 4.0, noise=NOISE_LIMIT - 0.01))
    assert not is_steady(timed("sdpa", 128, 4.0, noise=NOISE_LIMIT + 0.01))
    assert not is_steady(timed("sdpa", 128, 4.0).model_copy(update={"p10_ms": None}))


@pytest.mark.parametrize(("backward", "products"), [(False, 2.0), (True, 7.0)])
def test_tflops_count_two_products_of_each_visible_pair_forward_and_five_backward(
    backward: bool, products: float
) -> None:
    config = CONFIG.model_copy(update={"backward": backward})
    multiply_adds = config.heads * 5000.0 * config.head_dim
    assert attention_tflops(config, 5000.0, 1.0) == pytest.approx(products * 2 * multiply_adds / 1e9)
    assert attention_tflops(config, 5000.0, None) is None
    assert attention_tflops(config, None, 1.0) is None


def test_the_table_has_the_arithmetic_the_repetitions_and_the_spread() -> None:
    report = attention_report(timed("sdpa", 128, 2.0, 1.0, noise=0.1), timed("plain", 128, 6.0, 4.0), cpu="AMD EPYC")
    first, *_, header, sdpa, plain = wrap_lines(attention_text(report))
    assert first.startswith("AMD Instinct MI300X (gfx942), CPU AMD EPYC, torch ")
    window = attention_report(*report.rows, config=CONFIG.model_copy(update={"preset": "window"}))
    for shown, words in ((report, ""), (window, ", window of 256 keys")):
        assert f"batch 2, 8 heads, head dim 64, float16{words}, causal, forward" in wrap_lines(attention_text(shown))
    assert header.split("  ")[0] == "tokens"
    assert re.split("  +", header)[2:7] == ["TFLOP/s", "median ms", "p10 ms", "p90 ms", "repetitions"]
    assert sdpa.split()[:7] == ["128", "sdpa", "1", "2", "1.9", "2.1", "15"]
    assert "3.00 x" in sdpa
    assert "1.00 x" in plain


def test_noise_is_warned_of_and_gives_no_ratio() -> None:
    report = attention_report(timed("sdpa", 128, 2.0, noise=0.75), timed("plain", 128, 6.0))
    *_, header, sdpa, _, warning = wrap_lines(attention_text(report))
    assert "faster than plain" in header
    assert " x" not in sdpa
    assert warning == (
        "warning: times of sdpa vary by more than 20 % at 128 (75 %) tokens, p10 to p90 over the median: "
        "no ratio to plain is given there"
    )
    steady = attention_report(timed("sdpa", 128, 2.0, noise=0.1), timed("plain", 128, 6.0))
    lines = wrap_lines(attention_text(steady))
    assert not any(line.startswith("warning") for line in lines)
    assert not any("extra MiB" in line for line in lines), "nothing was measured of it"


@pytest.mark.parametrize("width", [80, 160])
def test_a_terminal_gets_every_column_within_its_width(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A narrow one in two tables, which both name the rows."""
    report = attention_report(*(timed(name, 128, 2.0, 1.0, noise=0.1) for name in ("flash-attn", "plain")))
    for name in ("NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"TERM": "xterm-256color", "FORCE_COLOR": "1", "COLUMNS": str(width)}.items():
        monkeypatch.setenv(name, value)
    lines = [re.sub(r"\x1b\[[\d;]*m", "", line) for line in wrap_lines(attention_text(report))]
    assert max(map(len, lines)) <= width
    assert sum(line.split()[:2] == ["128", "flash-attn"] for line in lines) == (1 if width == 160 else 2)
    for title in ("implementation", "repetitions", "difference"):
        assert any(title in line for line in lines), "no title is broken"
