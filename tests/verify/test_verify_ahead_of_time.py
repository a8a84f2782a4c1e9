"""Gate ahead-of-time: upstream's kernels compile for absent GPUs; every kind of failure refuses the wheel."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from few_archs import FEW_ARCHS
from wheel_factory import MATRIX, TRITON, build_record, finished_wheel, small_machine
from wheelfactory.build.environments import Environment
from wheelfactory.core.cell import Cell
from wheelfactory.core.errors import BuildError
from wheelfactory.core.host import read_host
from wheelfactory.matrix.facts import Context
from wheelfactory.matrix.load import load_matrix
from wheelfactory.verify import ahead_of_time as module
from wheelfactory.verify.ahead_of_time import (
    CompileCase,
    CompiledKernel,
    CompileReport,
    check_ahead_of_time,
    predict_minutes,
)
from wheelfactory.verify.gate import Subject
from wheelfactory.verify.gates import verify
from wheelfactory.verify.limits import KnownLimit
from wheelfactory.verify.result import GateResult, Status
from wheelfactory.wheel.read import Wheel

OTHER_LABEL = Cell.parse("fa2.8.3-rocm6.4-torch2.13.0-py3-triton")
"""With the Triton and the payload of `TRITON`."""

MACHINES = {"gfx90a": 0x53F, "gfx942": 0x54C, "gfx1030": 0x36}
"""e_flags as Triton's LLVM writes them: the machine in the low byte, features above it."""


def header(arch: str, machine: int = 224, magic: bytes = b"\x7fELF") -> str:
    """The first 64 bytes of a code object, in hex."""
    ident = magic + bytes([2, 1, 1, 64, 3]) + bytes(7)
    return (ident + struct.pack("<HHIQQQIHHHHHH", 3, machine, 1, 0, 64, 0, MACHINES[arch], 64, 56, 8, 64, 12, 10)).hex()


def kernel(arch: str, entry: str = "fwd", **changes: str) -> CompiledKernel:
    fields = {"name": f"_{entry}_kernel", "entry": entry, "header": header(arch), **changes}
    return CompiledKernel(**fields, size=1000, lds=16384)


def report(arch: str, *kernels: CompiledKernel, error: str | None = None) -> CompileReport:
    """One case with these kernels; by default the required ones."""
    case = CompileCase(
        name="dense 64 causal float16",
        entries=("fwd", "bwd"),
        kernels=kernels or (kernel(arch), kernel(arch, "bwd")),
        error=error,
    )
    return CompileReport(cases=(case,))


class FakeProgram:
    """A fake program: its report for each arch, and the archs of its calls."""

    def __init__(self) -> None:
        self.compiled: list[str] = []
        self.reports: dict[str, CompileReport | str] = {}

    def run(
        self, command: tuple[object, ...], kind: object, environment: Environment, *_: object, **__: object
    ) -> CompileReport | str:
        arch = str(command[1])
        self.compiled.append(arch)
        return self.reports.get(arch, report(arch))


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeProgram:
    @contextmanager
    def environment(*_: object) -> Iterator[Environment]:
        yield Environment(tmp_path / "env")

    found = FakeProgram()
    monkeypatch.setattr(module, "run_program", found.run)
    monkeypatch.setattr(module, "stand_in_environment", environment)
    return found


def subject_of(path: Path, given: Context, *archs: str, cell: Cell = TRITON) -> Subject:
    return Subject(Wheel.open(path), build_record(cell, offload_archs=archs), cell, context=given)


def result_of(tmp_path: Path, *archs: str, **members: bytes) -> GateResult:
    path = finished_wheel(tmp_path / "wheels", TRITON, members={"flash_attn.py": b"", **members})
    return check_ahead_of_time(subject_of(path, small_machine(tmp_path / "cache"), *archs))


def test_every_promised_arch_is_compiled_and_counted(tmp_path: Path, program: FakeProgram) -> None:
    result = result_of(tmp_path, "gfx90a", "gfx942")

    assert (result.gate, result.status, result.findings) == ("ahead-of-time", Status.PASSED, ())
    assert program.compiled == ["gfx90a", "gfx942"]
    assert result.detail == "Triton 3.7.1 for gfx90a, gfx942"
    assert result.versions.keys() == {"flash-attn payload", "torch", "triton"}
    assert (result.versions["torch"], result.versions["triton"]) == ("2.13.0+cpu", "3.7.1")
    assert result.figures == {
        f"{arch} {name}": number
        for arch in ("gfx90a", "gfx942")
        for name, number in (("kernels", 2), ("code object bytes", 2000), ("most LDS bytes", 16384))
    }


@pytest.mark.parametrize(
    ("answer", "expected", "found"),
    [
        pytest.param(
            report("gfx942", error="bwd: CompilationError: no"),
            "dense 64 causal float16 to compile for gfx942 with Triton 3.7.1",
            "bwd: CompilationError: no",
            id="does not compile",
        ),
        pytest.param(
            report("gfx942", kernel("gfx942")),
            "bwd of dense 64 causal float16 to compile for gfx942 with Triton 3.7.1",
            "no kernel",
            id="launches nothing",
        ),
        pytest.param(
            report("gfx942", kernel("gfx90a"), kernel("gfx942", "bwd")),
            "_fwd_kernel of dense 64 causal float16 as a code object for gfx942",
            "gfx90a",
            id="compiles for another arch",
        ),
        pytest.param(
            report("gfx942", kernel("gfx942", header=header("gfx942", machine=62)), kernel("gfx942", "bwd")),
            "_fwd_kernel of dense 64 causal float16 as a code object for gfx942",
            "code for machine 62",
            id="compiles for x86-64",
        ),
        pytest.param(
            report("gfx942", kernel("gfx942", header=header("gfx942", magic=b".amd")), kernel("gfx942", "bwd")),
            "_fwd_kernel of dense 64 causal float16 as a code object for gfx942",
            "no code object (no ELF magic)",
            id="is assembly",
        ),
        pytest.param(
            report("gfx942", kernel("gfx942", header=""), kernel("gfx942", "bwd")),
            "_fwd_kernel of dense 64 causal float16 as a code object for gfx942",
            "no code object (no ELF magic)",
            id="is empty",
        ),
        pytest.param(
            CompileReport(cases=()), "to compile for gfx942 with Triton 3.7.1", "no case", id="is not called at all"
        ),
        pytest.param(
            "killed by SIGABRT; dense 64 causal float16; LLVM ERROR: Cannot select",
            "to compile for gfx942 with Triton 3.7.1",
            "killed by SIGABRT; dense 64 causal float16; LLVM ERROR: Cannot select",
            id="ends the compiler",
        ),
    ],
)
def test_each_fault_is_one_finding(
    tmp_path: Path, program: FakeProgram, answer: CompileReport | str, expected: str, found: str
) -> None:
    program.reports = {"gfx942": answer}

    result = result_of(tmp_path, "gfx90a", "gfx942")

    (finding,) = result.findings
    assert result.status is Status.FAILED
    assert finding.file == "flash_attn-2.8.3+rocm72torch2.13triton-py3-none-any.whl"
    assert (finding.expected, finding.found) == (expected, found)
    assert "remove the arch or this Triton from the supported ones in matrix.yaml" in finding.remedy


def test_a_proof_is_reused_under_another_label(tmp_path: Path, program: FakeProgram) -> None:
    first = result_of(tmp_path, "gfx90a", "gfx942")
    program.compiled.clear()
    path = finished_wheel(tmp_path / "other", OTHER_LABEL, members={"flash_attn.py": b""})
    subject = subject_of(path, small_machine(tmp_path / "cache"), "gfx90a", "gfx942", cell=OTHER_LABEL)

    again = check_ahead_of_time(subject)

    assert (program.compiled, again) == ([], first)


def test_each_compile_is_announced_with_its_number(
    tmp_path: Path, program: FakeProgram, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "wheelfactory")
    result_of(tmp_path, "gfx90a", "gfx942")
    assert [text for text in caplog.messages if text.startswith("compiling for")] == [
        "compiling for gfx90a (1 of 2) with Triton 3.7.1",
        "compiling for gfx942 (2 of 2) with Triton 3.7.1",
    ]


@pytest.mark.parametrize(("archs", "jobs", "minutes"), [(10, 2, 4), (10, 1, 9), (3, 2, 2), (1, 8, 1), (0, 1, 1)])
def test_the_minutes_follow_from_archs_and_parallel_compiles(
    tmp_path: Path, archs: int, jobs: int, minutes: int
) -> None:
    """Ten archs took 4 min 28 s on two cores."""
    given = small_machine(tmp_path / "cache")
    given = replace(given, environ={**given.environ, "MAX_JOBS": str(jobs)})
    path = finished_wheel(tmp_path / "wheels", TRITON, members={"flash_attn.py": b""})
    assert predict_minutes(subject_of(path, given, *(f"gfx{number}" for number in range(archs)))) == minutes


def test_only_archs_without_proof_are_compiled(tmp_path: Path, program: FakeProgram) -> None:
    result_of(tmp_path, "gfx90a")
    result_of(tmp_path, "gfx90a", "gfx942")
    result_of(tmp_path, "gfx942", other=b"payload")
    assert program.compiled == ["gfx90a", "gfx942", "gfx942"]


@pytest.mark.parametrize("failure", ["timed out after 1800 seconds", report("gfx942", error="bwd: no")])
def test_a_failure_is_not_cached(tmp_path: Path, program: FakeProgram, failure: CompileReport | str) -> None:
    program.reports = {"gfx942": failure}
    assert result_of(tmp_path, "gfx90a", "gfx942").status is Status.FAILED
    assert len(list((tmp_path / "cache/proofs").iterdir())) == 1

    program.reports = {}
    assert result_of(tmp_path, "gfx90a", "gfx942").status is Status.PASSED
    assert program.compiled == ["gfx90a", "gfx942", "gfx942"]


def test_a_damaged_proof_is_replaced(tmp_path: Path, program: FakeProgram) -> None:
    result = result_of(tmp_path, "gfx942")
    (proof,) = (tmp_path / "cache/proofs").iterdir()
    whole = proof.read_bytes()
    proof.write_bytes(whole[:-20])

    assert result_of(tmp_path, "gfx942") == result
    assert (program.compiled, proof.read_bytes()) == (["gfx942", "gfx942"], whole)


def test_a_cached_report_with_faults_is_not_a_proof(tmp_path: Path, program: FakeProgram) -> None:
    """As after a change of the rule: what is kept is what was seen, not what was thought of it."""
    result_of(tmp_path, "gfx942")
    (proof,) = (tmp_path / "cache/proofs").iterdir()
    proof.write_bytes(proof.read_bytes().replace(header("gfx942").encode(), header("gfx90a").encode()))

    assert result_of(tmp_path, "gfx942").status is Status.PASSED
    assert program.compiled == ["gfx942", "gfx942"]


def test_a_known_limit_is_skipped_and_reported(tmp_path: Path, program: FakeProgram) -> None:
    assert result_of(tmp_path, "gfx942", "gfx1030").detail.startswith(
        "Triton 3.7.1 for gfx942, gfx1030; skipped: causal backward in bf16 on gfx1030"
    )


def test_a_wheel_that_promises_nothing_is_not_passed(tmp_path: Path, program: FakeProgram) -> None:
    assert result_of(tmp_path).status is Status.NOT_RUN


def test_a_failed_installation_is_not_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(*_: object) -> Environment:
        raise BuildError("command failed", "pip install", "triton==3.7.1 must be installable")

    monkeypatch.setattr(module, "stand_in_environment", nothing)
    with pytest.raises(BuildError):
        result_of(tmp_path, "gfx942")
    assert not (tmp_path / "cache/proofs").exists()


def real_result(folder: Path, cache: Path, members: Mapping[str, bytes], arch: str, triton: str) -> GateResult:
    """With upstream's code, really compiled."""
    torch = {TRITON.torch: MATRIX.torch[TRITON.torch].model_copy(update={"triton": triton})}
    given = small_machine(cache, os.environ)
    given = replace(given, matrix=MATRIX.model_copy(update={"torch": torch}))
    return check_ahead_of_time(subject_of(finished_wheel(folder, TRITON, members=members), given, arch))


@pytest.fixture
def forward_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Backward passes take most of the time, and the tests of upstream's kernels have them."""
    limit = KnownLimit("*", flash_attn=">=2", reason="backward, to save time")
    monkeypatch.setattr(module, "find_cell_limits", lambda subject, arch: (limit,))


@pytest.mark.slow
def test_upstreams_kernels_compile_for_an_arch_of_each_family(
    proved: Path, few_archs: Path, triton_wheel: Path
) -> None:
    """The results that other tests and the documentation reuse: Triton links in its own process."""
    matrix, environ = load_matrix(few_archs), dict(os.environ)
    results = verify(triton_wheel, context=Context(matrix, read_host(environ), environ, proved))
    (result,) = (result for result in results if result.gate == "ahead-of-time")
    assert {arch: result.figures[f"{arch} kernels"] for arch in FEW_ARCHS} == dict.fromkeys(FEW_ARCHS, 24)
    assert all(result.figures[f"{arch} code object bytes"] > 100_000 for arch in FEW_ARCHS)
    assert 8192 < result.figures["gfx90a most LDS bytes"] <= 65536


@pytest.mark.slow
def test_upstreams_kernels_compile_and_link_with_another_triton(
    tmp_path: Path, bare_cache: Path, upstream: Mapping[str, bytes]
) -> None:
    result = real_result(tmp_path, bare_cache, upstream, "gfx90a", "3.4.0")

    assert (result.status, result.findings) == (Status.PASSED, ())
    assert result.figures["gfx90a kernels"] == 24
    (proof,) = (bare_cache / "proofs").iterdir()
    for entry in ("fwd", "bwd", "varlen_fwd", "varlen_bwd", "fwd_kvcache"):
        assert f'"entry": "{entry}"' in proof.read_text()


@pytest.mark.slow
def test_a_limit_leaves_out_the_backward_pass_or_all(
    tmp_path: Path, bare_cache: Path, upstream: Mapping[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    half = KnownLimit("* float16", flash_attn=">=2", reason="backward in fp16")
    cached = KnownLimit("cached*", flash_attn=">=2", reason="a cache", skip_forward=True)
    monkeypatch.setattr(module, "find_cell_limits", lambda subject, arch: (half, cached))

    result = real_result(tmp_path, bare_cache, upstream, "gfx942", "3.7.1")

    assert (result.status, result.findings) == (Status.PASSED, ())
    assert result.detail == "Triton 3.7.1 for gfx942; skipped: backward in fp16; skipped: a cache"
    # three of the five cases with a backward pass are in fp16, and two cases have a cache
    assert result.figures["gfx942 kernels"] == 24 - 3 * 3 - 2 * 2


@pytest.mark.slow
def test_the_figures_are_the_same_wherever_it_is_compiled(
    tmp_path: Path, bare_cache: Path, upstream: Mapping[str, bytes], forward_only: None
) -> None:
    """The manifest keeps them, and a release must come out the same on every machine."""
    here = real_result(tmp_path, bare_cache, upstream, "gfx942", "3.7.1")
    elsewhere = bare_cache.rename(tmp_path / ("c" * 200))
    (elsewhere / "proofs").rename(tmp_path / "proofs")

    assert real_result(tmp_path, elsewhere, upstream, "gfx942", "3.7.1") == here


@pytest.mark.slow
@pytest.mark.parametrize(
    ("good", "bad", "cases", "error"),
    [
        pytest.param(
            b"tl.zeros([BLOCK_M], dtype=tl.float32)",
            b"tl.no_zeros([BLOCK_M])",
            ("cached 128 causal float16", "cached 64 full bfloat16"),
            "fwd_kvcache: CompilationError: AttributeError",
            id="does not compile",
        ),
        pytest.param(
            b"BLOCK_N = 64",
            b"BLOCK_N = 512",
            ("cached 128 causal float16",),
            "fwd_kvcache: OutOfResources: out of resource: shared memory",
            id="needs more than the GPU has",
        ),
    ],
)
def test_a_kernel_that_cannot_run_is_a_finding(
    tmp_path: Path,
    bare_cache: Path,
    upstream: Mapping[str, bytes],
    forward_only: None,
    good: bytes,
    bad: bytes,
    cases: tuple[str, ...],
    error: str,
) -> None:
    name = "flash_attn/flash_attn_triton_amd/fwd_decode.py"
    assert good in upstream[name]
    changed = {**upstream, name: upstream[name].replace(good, bad)}

    result = real_result(tmp_path, bare_cache, changed, "gfx942", "3.7.1")

    assert result.status is Status.FAILED
    expected = [f"{case} to compile for gfx942 with Triton 3.7.1" for case in cases]
    assert [finding.expected for finding in result.findings] == expected
    assert all(error in finding.found for finding in result.findings)
    assert not (bare_cache / "proofs").exists()
