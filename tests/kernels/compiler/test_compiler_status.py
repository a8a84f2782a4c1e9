"""The status line while kernels compile."""

from __future__ import annotations

from wheelfactory.kernels.compiler.status import estimate_time_left, format_duration, render_status_line


def test_time_left_is_the_prediction_scaled_by_the_speed_so_far() -> None:
    assert estimate_time_left(8000.0, 4000.0, elapsed_s=600.0, jobs=4) == 1200.0
    assert estimate_time_left(8000.0, 0.0, elapsed_s=600.0, jobs=4) == 2000.0


def test_a_status_line_shows_rate_time_left_and_memory() -> None:
    line = render_status_line("fmha_x", 300, 2525, elapsed_s=600.0, left_s=1200.0, peak_mib=1204)
    assert line == "[300/2525] 30.0/min, 20 min left, peak 1204 MiB: fmha_x"


def test_durations_are_rounded_for_readers() -> None:
    assert [format_duration(seconds) for seconds in (0.4, 99, 4521, 7500)] == ["0 s", "99 s", "75 min", "2 h 05 min"]
