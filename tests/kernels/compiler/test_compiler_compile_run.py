"""Objects of a set: stored or discarded, and measured while they are compiled."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from wheelfactory.kernels.compiler.compile_run import CompileRun
from wheelfactory.kernels.compiler.costs import Ledger
from wheelfactory.kernels.compiler.request import CompileRequest
from wheelfactory.kernels.compiler.schedule import Compile
from wheelfactory.kernels.compiler.store import ObjectRecord, SetKey, Store

HEAVY, LIGHT, BINDING, HEADER = "fmha_bwd_api", "fmha_fwd_d64", "flash_api", "fmha_fwd.hpp"
PREDICTED_S = {HEAVY: 114.0, LIGHT: 23.0, BINDING: 1.0, HEADER: 4.0}
TARGETS = ("gfx942",)


class Work:
    """Two kernels and a binding, and a compiler that is a shell command."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.script = folder, "echo object > $output"
        self.store = Store(folder / "kernels", SetKey({}, (HEAVY, LIGHT)))
        self.store.create()

    def output(self, name: str) -> Path:
        """The object of a source, before it is saved."""
        return self.folder / f"{name}.o"

    def compile(self, *names: str, deadline: float | None = None) -> CompileRun:
        """Compile these one after another."""
        request = CompileRequest(
            "", str(self.folder / "kernels"), str(self.folder / "ledger"), "", 1, deadline=deadline
        )
        compiles = [self._compile(name) for name in names]
        needed = {(item.source, item.targets): item.predicted_s for item in compiles if item.name != HEADER}
        run = CompileRun(request, {TARGETS: self.store}, "c1", needed)
        run.run(compiles, lambda ended: run.save(ended) if ended.compile.targets else None)
        return run

    def _compile(self, name: str) -> Compile:
        command = ["sh", "-c", f"output={self.output(name)}; {self.script}"]
        targets = () if name in (BINDING, HEADER) else TARGETS
        return Compile(
            name, name, targets, self.output(name), command, str(self.folder), dict(os.environ), PREDICTED_S[name]
        )


@pytest.fixture
def work(tmp_path: Path) -> Work:
    return Work(tmp_path)


def test_a_kernel_is_saved_and_its_cost_recorded(work: Work) -> None:
    work.compile(LIGHT)
    kept = work.store.read_records()[LIGHT]
    assert (kept.targets, kept.size) == (TARGETS, 7)
    assert not work.output(LIGHT).exists()
    assert work.store.object_path(LIGHT).read_text() == "object\n"
    (measured,) = Ledger.read(work.folder / "ledger").measurements
    assert (measured.source, measured.compiler, measured.peak_mib) == (LIGHT, "c1", kept.peak_mib)


def test_the_clock_of_the_wall_may_be_set_while_it_compiles(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = time.time, iter(range(1000))
    monkeypatch.setattr(time, "time", lambda: real() + 36_000 * next(calls))
    run = work.compile(LIGHT, HEAVY, deadline=real() + 400)
    assert not run.late
    assert run.slowest_ratio == 1
    assert all(0 <= entry.end - entry.start < 60 for entry in work.store.read_records().values())


def test_a_status_line_counts_the_needed_objects_and_only_names_other_compiles(
    work: Work, capsys: pytest.CaptureFixture[str]
) -> None:
    work.compile(HEADER, LIGHT, BINDING)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("[")]
    assert [line.partition("]")[0] for line in lines] == ["[0/2", "[1/2", "[2/2"]
    assert [line.rpartition(" ")[2] for line in lines] == [HEADER, LIGHT, BINDING]


def test_a_failure_is_printed_with_its_object_command_and_output(
    work: Work, capsys: pytest.CaptureFixture[str]
) -> None:
    work.script = "echo boom >&2; exit 3"
    objects = work.compile(LIGHT)
    assert objects.failed
    _, failed, command, output = capsys.readouterr().out.splitlines()
    assert failed == f"FAILED: [code=3] {work.folder}/{LIGHT}.o "
    assert command.startswith(f"sh -c 'output={work.output(LIGHT)}; ")
    assert output == "boom"


def test_a_compile_that_would_miss_the_deadline_is_not_started(work: Work) -> None:
    objects = work.compile(HEAVY, LIGHT, deadline=time.time() + 60)
    assert objects.late
    assert not objects.failed
    assert list(work.store.read_records()) == [LIGHT]


def test_a_binding_is_not_compiled_if_a_kernel_is_missing_for_the_link(work: Work) -> None:
    work.compile(HEAVY, BINDING, deadline=time.time() + 100)
    assert not work.output(BINDING).exists()


def test_a_machine_that_is_slower_than_predicted_stops_earlier(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PREDICTED_S, LIGHT, 0.04)
    work.script = "sleep 0.2; echo object > $output"
    objects = work.compile(LIGHT, HEAVY, deadline=time.time() + 4 * PREDICTED_S[HEAVY])
    assert objects.late
    assert list(work.store.read_records()) == [LIGHT]


def test_after_a_failed_save_no_other_compile_starts(
    work: Work, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def keep(store: Store, built: Path, entry: ObjectRecord) -> None:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    monkeypatch.setattr(Store, "save_object", keep)
    objects = work.compile(LIGHT, HEAVY)
    assert objects.error == f"{work.store.folder}: Disk quota exceeded"
    assert capsys.readouterr().err == f"error: cannot save object: {LIGHT}: Disk quota exceeded\n"
    assert not work.output(HEAVY).exists()
