"""Objects of a set: stored or discarded, and measured while they are compiled."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

from wheelfactory.kernels.compiler.compiler import Compiler
from wheelfactory.kernels.compiler.costs import Ledger
from wheelfactory.kernels.compiler.edges import CompileInputs, Edge
from wheelfactory.kernels.compiler.launcher import LAUNCHER_PATH
from wheelfactory.kernels.compiler.objects import MIN_FREE_BYTES, ObjectCompiler
from wheelfactory.kernels.compiler.request import CompileRequest
from wheelfactory.kernels.compiler.store import ObjectRecord, SetKey, Store

HEAVY, LIGHT, BINDING = "fmha_bwd_api", "fmha_fwd_d64", "flash_api"
PREDICTED_S = {HEAVY: 114.0, LIGHT: 23.0}


class Work:
    """Two kernels and a binding, and a compiler that is a shell script."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.hipcc = folder, folder / "rocm/bin/hipcc"
        self.hipcc.parent.mkdir(parents=True)
        self.does("echo object > $output")
        self.store = Store(folder / "kernels", SetKey({}, tuple(PREDICTED_S)))
        self.store.create()

    def does(self, script: str) -> None:
        """What the compiler does; `name` is the source's, `output` the object's path."""
        words = 'for output; do [ "$last" = -c ] && name=$(basename "$output" .hip); last=$output; done'
        self.hipcc.write_text(f"#!/bin/sh\n{words}\n{script}\n")
        self.hipcc.chmod(0o755)

    def compile(self, *names: str, deadline: float | None = None) -> ObjectCompiler:
        """Compile these one after another."""
        edges = [self._edge(name) for name in names]
        request = CompileRequest(
            "", str(self.folder / "kernels"), str(self.folder / "ledger"), "", 1, deadline=deadline
        )
        content = Compiler(version="", llvm=0, amd=False, content="c1")
        found = CompileInputs(
            {}, (), str(self.hipcc), ("gfx942",), content, self.store.key, early_inline_disabled=False
        )
        objects = ObjectCompiler(request, found, self.store, self._environ(), PREDICTED_S)
        objects.compile_edges(edges)
        return objects

    def _environ(self) -> Mapping[str, str]:
        return {"PATH": os.environ["PATH"]}

    def _edge(self, name: str) -> Edge:
        folder = self.folder / ("build" if name in PREDICTED_S else "csrc")
        folder.mkdir(exist_ok=True)
        source, output = folder / f"{name}.hip", self.folder / f"{name}.o"
        launcher = f"python {LAUNCHER_PATH}" if name in PREDICTED_S else ""
        return Edge(f"{launcher} {self.hipcc} -c {source} -o {output}", str(source), str(output))


@pytest.fixture
def work(tmp_path: Path) -> Work:
    return Work(tmp_path)


def test_a_kernel_is_saved_and_its_cost_recorded(work: Work) -> None:
    work.compile(LIGHT)
    kept = work.store.read_records()[LIGHT]
    assert (kept.archs, kept.size, kept.cached) == (("gfx942",), 7, False)
    (measured,) = Ledger.read(work.folder / "ledger").measurements
    assert (measured.source, measured.compiler, measured.peak_mib) == (LIGHT, "c1", kept.peak_mib)


def test_a_binding_is_compiled_with_torchs_command_and_not_saved(work: Work) -> None:
    work.compile(BINDING)
    assert (work.folder / f"{BINDING}.o").exists()
    assert work.store.read_records() == {}


def test_objects_of_an_earlier_run_are_not_reused(work: Work) -> None:
    (work.folder / f"{LIGHT}.o").write_text("of another key")
    work.does("exit 3")
    work.compile(LIGHT)
    assert not (work.folder / f"{LIGHT}.o").exists()


def test_a_failure_is_printed_with_its_object_command_and_output(
    work: Work, capsys: pytest.CaptureFixture[str]
) -> None:
    work.does("echo boom >&2; exit 3")
    objects = work.compile(LIGHT)
    assert objects.failed
    _, failed, command, output = capsys.readouterr().out.splitlines()
    assert failed == f"FAILED: [code=3] {work.folder}/{LIGHT}.o "
    assert command.endswith(f" -o {work.folder}/{LIGHT}.o")
    assert output == "boom"


def test_a_slow_compile_raises_the_ratio(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PREDICTED_S, LIGHT, 0.04)
    work.does("sleep 0.2; echo object > $output")
    assert work.compile(LIGHT, HEAVY).slowest_ratio >= 5


def test_a_fast_compile_does_not_lower_the_ratio(work: Work) -> None:
    assert work.compile(LIGHT).slowest_ratio == 1


def test_a_compile_that_would_miss_the_deadline_is_not_started(work: Work) -> None:
    objects = work.compile(HEAVY, LIGHT, deadline=time.time() + 60)
    assert objects.late
    assert not objects.failed
    assert list(work.store.read_records()) == [LIGHT]


def test_a_binding_is_not_compiled_if_a_kernel_is_missing_for_the_link(work: Work) -> None:
    work.compile(HEAVY, BINDING, deadline=time.time() + 100)
    assert not (work.folder / f"{BINDING}.o").exists()


def test_a_machine_that_is_slower_than_predicted_stops_earlier(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PREDICTED_S, LIGHT, 0.04)
    work.does("sleep 0.2; echo object > $output")
    objects = work.compile(LIGHT, HEAVY, deadline=time.time() + 4 * PREDICTED_S[HEAVY])
    assert objects.late
    assert list(work.store.read_records()) == [LIGHT]


@pytest.mark.parametrize(("free_bytes", "full"), [(MIN_FREE_BYTES - 1, True), (MIN_FREE_BYTES, False)])
def test_a_failure_on_a_full_disk_is_attributed_to_the_disk(
    work: Work, free_bytes: int, full: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=free_bytes))
    work.does("exit 1")
    assert work.compile(LIGHT).error == (f"{work.folder}: No space left on device" if full else "")


def test_after_a_failed_save_no_other_compile_starts(
    work: Work, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def keep(store: Store, built: Path, entry: ObjectRecord) -> None:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    monkeypatch.setattr(Store, "save_object", keep)
    objects = work.compile(LIGHT, HEAVY)
    assert objects.error == f"{work.store.folder}: Disk quota exceeded"
    assert capsys.readouterr().err == f"error: cannot save object: {LIGHT}: Disk quota exceeded\n"
    assert not (work.folder / f"{HEAVY}.o").exists()
