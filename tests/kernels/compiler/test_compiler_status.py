"""What a person is told while kernels compile."""

from __future__ import annotations

import pytest

from wheelfactory.kernels.compiler.status import estimate_time_left, format_duration, render_status_line


def test_time_left_is_scaled_by_the_speed_so_far() -> None:
    assert estimate_time_left(8000.0, 4000.0, elapsed_s=600.0, jobs=4) == 1200.0


def test_time_left_before_the_first_compile_ends_is_the_prediction() -> None:
    assert estimate_time_left(8000.0, 0.0, elapsed_s=600.0, jobs=4) == 2000.0


def test_a_status_line_shows_rate_time_left_and_memory() -> None:
    said = render_status_line("fmha_x", 300, 2525, elapsed_s=600.0, left_s=1200.0, peak_mib=1204)
    assert said == "[300/2525] 30.0/min, 20 min left, peak 1204 MiB: fmha_x"


@pytest.mark.parametrize(("seconds", "said"), [(0.4, "0 s"), (99, "99 s"), (4521, "75 min"), (7500, "2 h 05 min")])
def test_durations_are_rounded_for_readers(seconds: float, said: str) -> None:
    assert format_duration(seconds) == said
