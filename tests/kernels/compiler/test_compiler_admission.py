"""May one more compile start?"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from wheelfactory.kernels.compiler.admission import RESERVE_MIB, UNKNOWN_COMPILER, Running, expected_mib, may_start
from wheelfactory.kernels.compiler.costs import DRIVER_MIB

MIB = st.floats(min_value=1, max_value=1e6)


def test_one_alone_always_may_start_because_waiting_would_not_help() -> None:
    assert may_start(5000, 100, [])


def test_one_more_may_start_if_it_fits_beside_what_the_others_will_still_take() -> None:
    running = [Running(predicted_mib=1000, resident_mib=400)]
    assert may_start(1000, 1600 + RESERVE_MIB, running)
    assert not may_start(1000, 1599 + RESERVE_MIB, running)


def test_one_that_took_more_than_predicted_takes_nothing_back() -> None:
    assert Running(predicted_mib=1000, resident_mib=1500).still_to_come_mib == 0


@given(wanted=MIB, free=MIB, others=st.lists(st.tuples(MIB, MIB), min_size=1, max_size=8))
def test_if_predictions_hold_memory_never_runs_out(
    wanted: float, free: float, others: list[tuple[float, float]]
) -> None:
    running = [Running(predicted, min(predicted, resident)) for predicted, resident in others]
    if may_start(wanted, free, running):
        to_come = wanted + sum(other.predicted_mib - other.resident_mib for other in running)
        assert to_come <= free


def test_a_compiler_that_was_never_measured_gets_the_room_of_the_worst_one_known() -> None:
    assert expected_mib(1000, None) == 1000 * UNKNOWN_COMPILER + DRIVER_MIB


def test_a_measured_one_gets_what_it_took_at_most_but_never_less_than_predicted() -> None:
    assert expected_mib(1000, 1.5) == 1500 + DRIVER_MIB
    assert expected_mib(1000, 0.5) == 1000 + DRIVER_MIB
