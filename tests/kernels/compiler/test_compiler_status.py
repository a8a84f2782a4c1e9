"""What a person is told while kernels compile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from wheelfactory.kernels.compiler.status import Pace, duration, status_line

PACE = Pace(
    elapsed_s=600.0,
    done=300,
    total=2525,
    predicted_done_s=4000.0,
    predicted_left_s=8000.0,
    jobs=4,
    peak_mib=1204,
)


def test_time_left_follows_the_predictions_and_not_the_count() -> None:
    assert PACE.left_s == 1200.0
    assert replace(PACE, done=3).left_s == 1200.0


def test_before_anything_has_ended_the_predictions_are_all_there_is() -> None:
    assert replace(PACE, predicted_done_s=0.0, done=0).left_s == 2000.0


def test_a_status_line_says_rate_time_left_and_memory() -> None:
    assert status_line("fmha_x", PACE) == "[300/2525] 30.0/min, 20 min left, peak 1204 MiB: fmha_x"


@pytest.mark.parametrize(("seconds", "said"), [(0.4, "0 s"), (99, "99 s"), (4521, "75 min"), (7500, "2 h 05 min")])
def test_times_are_said_as_people_say_them(seconds: float, said: str) -> None:
    assert duration(seconds) == said
