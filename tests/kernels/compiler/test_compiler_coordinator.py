"""Who may compile next, and what becomes of what was compiled."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from wheelfactory.core import memory
from wheelfactory.kernels.compiler.admission import RESERVE_MIB, UNKNOWN_COMPILER
from wheelfactory.kernels.compiler.coordinator import BINDING, LEAST_FREE, TRIES, Coordinator
from wheelfactory.kernels.compiler.costs import DRIVER_MIB, Cost, Measured
from wheelfactory.kernels.compiler.store import Finished, SetKey, Store

HEAVY, LIGHT = "fmha_bwd_api", "fmha_fwd_d64"
COSTS = {HEAVY: Cost(114.0, 1000, 1), LIGHT: Cost(23.0, 500, 1)}


@pytest.fixture
def measured() -> list[Measured]:
    return []


@pytest.fixture
def coordinator(tmp_path: Path, measured: list[Measured]) -> Coordinator:
    store = Store(tmp_path, SetKey({"compiler": {"content": "c1"}}, tuple(COSTS)))
    store.make()
    return Coordinator(
        store=store,
        archs=("gfx942",),
        predictions=COSTS,
        jobs=2,
        deadline=None,
        highest_ratio=1.0,
        measured=measured.append,
    )


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The free memory of the machine, in MiB, to be set; no process has taken anything yet."""
    now = [100_000]
    monkeypatch.setattr(memory, "free_mib", lambda: now[0])
    monkeypatch.setattr(memory, "resident_mib", lambda processes: dict.fromkeys(processes, 0))
    yield now


def ended(
    coordinator: Coordinator, process: int, source: str, code: int = 0, *, killed: bool = False, **told: str
) -> str:
    output = coordinator.store.folder / f"{source}.built"
    output.write_text("object")
    words = {"code": str(code), "cpu": "20.0", "kib": str(400 * 1024), "start": str(time.time()), "cached": "0", **told}
    answer = coordinator._ended(process, source, [*words.values(), str(output)], killed)
    coordinator._leave(process)
    return answer


def admitted(coordinator: Coordinator, process: int, source: str) -> threading.Event:
    """Asks in a thread of its own; the event says that it was admitted."""
    done = threading.Event()

    def ask() -> None:
        if coordinator.admit(process, source) == "go":
            done.set()

    threading.Thread(target=ask, daemon=True).start()
    return done


def waits(coordinator: Coordinator, process: int) -> None:
    while process not in coordinator.waiting:
        time.sleep(0.001)


def test_no_more_run_than_jobs_were_allowed(coordinator: Coordinator, free: list[int]) -> None:
    assert coordinator.admit(1, LIGHT) == coordinator.admit(2, LIGHT) == "go"
    third = admitted(coordinator, 3, LIGHT)
    waits(coordinator, 3)
    assert not third.is_set()

    ended(coordinator, 1, LIGHT)
    assert third.wait(10)


def test_a_compile_waits_until_its_memory_is_free(coordinator: Coordinator, free: list[int]) -> None:
    free[0] = 1300
    assert coordinator.admit(1, LIGHT) == "go"
    second = admitted(coordinator, 2, HEAVY)
    waits(coordinator, 2)
    assert not second.is_set()

    free[0] = 3000
    assert second.wait(10)


def test_what_a_running_compile_has_taken_already_is_not_kept_free_for_it(
    coordinator: Coordinator, free: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert coordinator.admit(1, HEAVY) == "go"
    free[0] = COSTS[LIGHT].peak_mib + DRIVER_MIB + RESERVE_MIB
    second = admitted(coordinator, 2, LIGHT)
    waits(coordinator, 2)
    assert not second.is_set()

    monkeypatch.setattr(memory, "resident_mib", lambda processes: dict.fromkeys(processes, COSTS[HEAVY].peak_mib * 2))
    assert second.wait(10)


def test_the_dearest_that_waits_is_next_and_light_ones_do_not_pass_it(
    coordinator: Coordinator, free: list[int]
) -> None:
    free[0] = 1300
    assert coordinator.admit(1, LIGHT) == "go"
    heavy = admitted(coordinator, 2, HEAVY)
    waits(coordinator, 2)
    light = admitted(coordinator, 3, LIGHT)
    waits(coordinator, 3)
    assert not light.wait(0.8)

    free[0] = 2000
    assert heavy.wait(10)


def test_an_unknown_compiler_starts_with_room_for_the_worst_and_then_by_what_it_took(
    coordinator: Coordinator, free: list[int]
) -> None:
    coordinator.highest_ratio = None
    free[0] = int(COSTS[LIGHT].peak_mib * UNKNOWN_COMPILER)
    assert coordinator.admit(1, LIGHT) == "go"
    second = admitted(coordinator, 2, LIGHT)
    waits(coordinator, 2)
    assert not second.is_set()

    ended(coordinator, 1, LIGHT)
    assert coordinator.highest_ratio == 400 / 500
    assert second.wait(10)


def test_one_that_took_more_than_predicted_makes_room_for_all_that_follow(
    coordinator: Coordinator, free: list[int]
) -> None:
    coordinator.admit(1, LIGHT)
    ended(coordinator, 1, LIGHT, kib=str(1500 * 1024))
    assert coordinator.highest_ratio == 3.0


def test_what_one_has_taught_of_time_and_memory_is_not_forgotten_for_one_that_took_less(
    coordinator: Coordinator, free: list[int]
) -> None:
    long_ago = time.time() - 5 * COSTS[LIGHT].cpu_s
    coordinator.admit(1, LIGHT)
    ended(coordinator, 1, LIGHT, kib=str(1500 * 1024), start=str(long_ago))
    coordinator.admit(2, HEAVY)
    ended(coordinator, 2, HEAVY)
    assert (coordinator.highest_ratio, coordinator.peak_mib) == (3.0, 1500)
    assert coordinator.slowest >= 5


def test_one_that_was_killed_for_want_of_memory_is_tried_again_with_more(
    coordinator: Coordinator, free: list[int]
) -> None:
    allowed = []
    for attempt in range(1, TRIES + 1):
        assert coordinator.admit(1, LIGHT) == "go"
        allowed.append(coordinator.running[1][1])
        answer = ended(coordinator, 1, LIGHT, 137, killed=True)
        assert answer == ("again" if attempt < TRIES else "killed for want of memory")
    assert allowed == [allowed[0], 2 * allowed[0], 4 * allowed[0]]


def test_others_learn_from_what_a_killed_one_had_taken_and_not_from_what_it_was_allowed(
    coordinator: Coordinator, free: list[int]
) -> None:
    coordinator.admit(1, LIGHT)
    ended(coordinator, 1, LIGHT, 137, killed=True, kib=str(900 * 1024))
    assert coordinator.highest_ratio == 900 / 500
    assert not coordinator.failed


def test_one_that_failed_for_another_reason_is_not(coordinator: Coordinator, free: list[int]) -> None:
    coordinator.admit(1, LIGHT)
    assert ended(coordinator, 1, LIGHT, 1) == "failed"
    assert coordinator.failed
    assert coordinator.store.finished() == {}


@pytest.mark.parametrize(("free_bytes", "full"), [(LEAST_FREE - 1, True), (LEAST_FREE, False)])
def test_a_compile_that_failed_without_room_to_write_failed_for_that(
    coordinator: Coordinator, free: list[int], free_bytes: int, full: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=free_bytes))
    coordinator.admit(1, LIGHT)
    assert ended(coordinator, 1, LIGHT, 1) == "failed"
    assert coordinator.trouble == (f"{coordinator.store.folder}: No space left on device" if full else "")


def test_what_was_compiled_is_kept_and_what_it_cost_is_told(
    coordinator: Coordinator, free: list[int], measured: list[Measured]
) -> None:
    coordinator.admit(1, LIGHT)
    assert ended(coordinator, 1, LIGHT) == "kept"
    assert coordinator.store.finished()[LIGHT].cpu_s == 20.0
    assert measured == [Measured(LIGHT, ("gfx942",), "c1", 20.0, 400, 6)]


def test_what_could_not_be_kept_is_told_with_the_reason_and_place(
    coordinator: Coordinator, free: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def keep(store: Store, built: Path, entry: Finished) -> None:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    monkeypatch.setattr(Store, "keep", keep)
    coordinator.admit(1, LIGHT)
    assert ended(coordinator, 1, LIGHT) == "Disk quota exceeded"
    assert coordinator.trouble == f"{coordinator.store.folder}: Disk quota exceeded"


def test_what_came_from_a_cache_is_kept_and_costs_nothing(
    coordinator: Coordinator, free: list[int], measured: list[Measured]
) -> None:
    coordinator.admit(1, LIGHT)
    assert ended(coordinator, 1, LIGHT, cached="1") == "kept"
    assert coordinator.store.finished()[LIGHT].cached
    assert measured == []


def test_a_binding_gets_the_room_it_may_need_and_is_not_kept(coordinator: Coordinator, free: list[int]) -> None:
    coordinator.highest_ratio = None
    assert coordinator.admit(1, "") == "go"
    assert coordinator.running[1][1] == BINDING.peak_mib + DRIVER_MIB
    assert ended(coordinator, 1, "") == "kept"
    assert coordinator.store.finished() == {}


def test_what_would_not_end_in_time_is_not_started(coordinator: Coordinator, free: list[int]) -> None:
    coordinator.deadline = time.time() + 60
    assert coordinator.admit(1, LIGHT) == "go"
    assert coordinator.admit(2, HEAVY) == "later"
    assert coordinator.stopped


def test_a_machine_that_is_slower_than_predicted_stops_earlier(coordinator: Coordinator, free: list[int]) -> None:
    coordinator.deadline = time.time() + 60
    coordinator.admit(1, LIGHT)
    ended(coordinator, 1, LIGHT, start=str(time.time() - 5 * COSTS[LIGHT].cpu_s))
    assert coordinator.admit(2, LIGHT) == "later"


def test_one_that_is_tried_again_has_given_back_what_it_held_before(
    coordinator: Coordinator, free: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would wait for itself where one may run at once."""
    coordinator.jobs = 1
    kills = iter(range(10))
    monkeypatch.setattr(memory, "out_of_memory_kills", lambda: next(kills))
    ours, theirs = socket.socketpair()
    conversation = threading.Thread(target=coordinator._converse, args=(theirs,), daemon=True)
    conversation.start()
    with ours, ours.makefile("rw") as lines:
        ours.settimeout(10)
        for line, answer in [(f"start\t{LIGHT}", "go"), ("end\t137\t1.0\t1024\t1.0\t0\t", "again")] * 2:
            lines.write(line + "\n")
            lines.flush()
            assert lines.readline() == answer + "\n"
        assert coordinator.running == {}
    conversation.join()


def test_a_launcher_that_is_gone_gives_back_what_it_held(coordinator: Coordinator, free: list[int]) -> None:
    ours, theirs = socket.socketpair()
    conversation = threading.Thread(target=coordinator._converse, args=(theirs,), daemon=True)
    conversation.start()
    with ours:
        ours.sendall(f"start\t{LIGHT}\n".encode())
        assert ours.recv(100) == b"go\n"
        assert [source for source, _ in coordinator.running.values()] == [LIGHT]
    conversation.join(10)
    assert coordinator.running == {}
