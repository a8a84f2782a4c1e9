"""What a compile started by setup.py is asked to do, and what is read of it afterwards, even if it was interrupted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from elf_bytes import header
from kernel_archive_factory import KEY, OBJECTS, PARTS, fill
from wheel_factory import CK
from wheelfactory.build.executor import BuildHost
from wheelfactory.build.setup_py import RawWheel, Recipe, SetupExtras, SetupRun
from wheelfactory.build.sources import Source
from wheelfactory.core.errors import BuildError, RunAgainError
from wheelfactory.core.host import Host
from wheelfactory.core.progress import ProgressCallback
from wheelfactory.kernels import setup_env as setup_env_module
from wheelfactory.kernels.archive import pack_archive
from wheelfactory.kernels.compiler.costs import Shard
from wheelfactory.kernels.compiler.request import (
    FAILED,
    READY_TO_LINK,
    SURVEYED,
    TIME_UP,
    CompileRequest,
    CompileResult,
)
from wheelfactory.kernels.compiler.store import SetKey, Store
from wheelfactory.kernels.compiler.survey import Survey
from wheelfactory.kernels.setup_env import (
    CompileScope,
    ledger_path,
    read_interrupted_result,
    read_outcome,
    run_compile,
    setup_env,
    store_folder,
)
from wheelfactory.matrix.facts import Context, Matrix

DEVICE, HOST = "ck-62327233-rocm6.4-gfx942", "ck-62327233-rocm6.4-cxx11"
HOST_KEY = SetKey({**PARTS, "targets": ["host"]}, KEY.sources)
BEGUN = CompileResult(
    state=FAILED, keys=(KEY.digest,), sources=tuple(OBJECTS), total=len(OBJECTS), reused=1, compiled=0, started=1.0
)


@pytest.fixture
def setup(tmp_path: Path) -> SetupRun:
    """A run of setup.py with 3 jobs; nothing else of it matters."""
    machine = SimpleNamespace(rocm_path="/opt/rocm")
    host = SimpleNamespace(
        machine=machine, python=Path("/venv/bin/python"), ninja=Path("/bin/ninja"), environ={"PATH": "/bin"}
    )
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    return SetupRun(
        cast("Recipe", SimpleNamespace(jobs=3, cell=CK, archs=())),
        cast("Source", None),
        cast("BuildHost", host),
        scratch,
        tmp_path / "build.log",
    )


def context_of(cache: Path) -> Context:
    """A context in which only the cache matters."""
    return Context(cast("Matrix", SimpleNamespace(flash_attn={CK.flash_attn: None})), cast("Host", None), {}, cache)


def request_of(setup: SetupRun, scope: CompileScope, cache: Path, *set_ids: str) -> CompileRequest:
    """The request that the compile of these sets reads."""
    extras = setup_env(setup, set_ids, scope, context_of(cache))
    return CompileRequest.read(extras.environ)


def answer(setup: SetupRun, result: CompileResult) -> None:
    """End the compile with this result."""
    result.write(CompileRequest(ninja="", kernels="", ledger="", result_file=f"{setup.scratch}/result.json", jobs=1))


# the request


def test_a_build_asks_for_everything(setup: SetupRun, tmp_path: Path) -> None:
    request = request_of(setup, CompileScope(), tmp_path, DEVICE, HOST)
    assert (request.targets, request.shard, request.deadline, request.archive_keys) == ((), "", None, ())
    assert (request.jobs, request.ninja) == (3, "/bin/ninja")
    assert request.kernels == str(store_folder(tmp_path))
    assert request.ledger == str(ledger_path(tmp_path))


def test_a_kernel_set_asks_for_its_targets_and_its_shard_until_the_deadline(setup: SetupRun, tmp_path: Path) -> None:
    shared = tmp_path / "shared.jsonl"
    scope = CompileScope(targets=("gfx942",), shard=Shard(2, 8), shard_ledger=shared, deadline=1.8e9)
    request = request_of(setup, scope, tmp_path, DEVICE)
    assert (request.targets, request.shard, request.deadline) == (("gfx942",), "2/8", 1.8e9)
    assert request.shard_ledger == str(shared)


def test_the_archives_of_all_sets_are_unpacked_and_their_keys_required(setup: SetupRun, tmp_path: Path) -> None:
    archives = tmp_path / "archives"
    pack_archive(fill(tmp_path / "one"), DEVICE, archives, None)
    host_objects = {source: header(type=1) + source.encode() for source in OBJECTS}
    pack_archive(fill(tmp_path / "one", host_objects, HOST_KEY), HOST, archives, None)

    request = request_of(setup, CompileScope(archives), tmp_path, DEVICE, HOST)

    assert list(request.archive_keys) == [KEY.parts, HOST_KEY.parts]
    for key in (KEY, HOST_KEY):
        assert Store(Path(request.kernels), key).read_records().keys() == OBJECTS.keys()


def test_a_set_without_an_archive_is_an_error_with_its_name(setup: SetupRun, tmp_path: Path) -> None:
    archives = tmp_path / "archives"
    pack_archive(fill(tmp_path / "one"), DEVICE, archives, None)

    with pytest.raises(BuildError, match=f"no archive of a kernel set: {HOST} in {archives}") as caught:
        request_of(setup, CompileScope(archives), tmp_path, DEVICE, HOST)
    assert f"wheelfactory kernels {HOST}" in caught.value.hint


# a cluster


@pytest.mark.parametrize("end", [RunAgainError("time limit reached", "4 of 12", ""), BuildError("failed", "one", "")])
def test_a_cluster_has_the_compiles_before_this_machine_and_its_samples_are_verified_however_that_ends(
    end: Exception, setup: SetupRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = Survey(str(tmp_path), (), {"fmha": "build/fmha.hip"}, "", "", "", {}, ())
    steps: list[object] = []

    class FakeCluster:
        @contextmanager
        def fill_store(
            self, survey: Survey, cache: Path, report_progress: ProgressCallback, *, deadline: float | None
        ) -> Iterator[None]:
            steps.append((survey, cache, deadline))
            try:
                yield
            finally:
                steps.append("verified")

    def fake_setup(_setup: SetupRun, extras: SetupExtras) -> RawWheel:
        request = CompileRequest.read(extras.environ)
        if not request.survey:
            steps.append("compiled here")
            raise end
        Path(request.survey).write_text(json.dumps(asdict(listed)))
        replace(BEGUN, state=SURVEYED, keys=()).write(request)
        raise BuildError("setup.py failed", "at the link", "")

    monkeypatch.setattr(setup_env_module, "run_setup", fake_setup)
    monkeypatch.setattr(setup_env_module, "list_planned_sources", lambda *_: None)
    scope = CompileScope(deadline=1.8e9, cluster=FakeCluster())
    with pytest.raises(type(end)) as ended:
        run_compile(setup, (DEVICE,), scope, context_of(tmp_path))
    assert ended.value is end
    assert steps == [(listed, tmp_path, 1.8e9), "compiled here", "verified"]


# the result


def test_the_objects_compiled_for_each_target_are_in_the_timeline(setup: SetupRun, tmp_path: Path) -> None:
    for key in (KEY, HOST_KEY):
        fill(tmp_path / "kernels", key=key)
    result = replace(BEGUN, state=READY_TO_LINK, keys=(KEY.digest, HOST_KEY.digest))
    answer(setup, result)

    assert read_outcome(setup, tmp_path / "kernels") == result
    events = json.loads((tmp_path / "build.trace.json").read_text())["traceEvents"]
    assert len([event for event in events if event["ph"] == "X"]) == 2 * len(OBJECTS)

    (tmp_path / "build.trace.json").unlink()
    answer(setup, replace(result, started=1e9))
    assert read_outcome(setup, tmp_path / "kernels")
    assert not (tmp_path / "build.trace.json").exists(), "of a build that compiled nothing"


def test_a_compile_that_ran_out_of_time_says_how_far_it_came(setup: SetupRun, tmp_path: Path) -> None:
    fill(tmp_path / "kernels")
    result = replace(BEGUN, state=TIME_UP, total=12, reused=4, compiled=3)
    answer(setup, result)

    assert read_interrupted_result(setup) == result
    with pytest.raises(RunAgainError, match="time limit reached: 7 of 12 kernels are compiled"):
        read_outcome(setup, tmp_path / "kernels")


def test_a_compile_that_was_interrupted_early_has_no_result(setup: SetupRun, tmp_path: Path) -> None:
    assert read_interrupted_result(setup) is None
    assert read_outcome(setup, tmp_path / "kernels") is None


def test_a_refused_compile_has_no_result(setup: SetupRun, tmp_path: Path) -> None:
    (setup.scratch / "result.json").write_text(json.dumps({"what": "no", "which": "it", "hint": ""}))
    assert read_interrupted_result(setup) is None
    with pytest.raises(BuildError, match="no: it"):
        read_outcome(setup, tmp_path / "kernels")
