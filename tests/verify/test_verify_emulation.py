"""Gate emulation: upstream's kernels compute attention for absent GPUs; one that is a little wrong is found out."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from few_archs import FEW_ARCHS
from numeric_reports import numbers
from shared_folder import share_triton_cache
from wheel_factory import MATRIX, TRITON, build_record, finished_wheel, small_machine
from wheelfactory.build.environments import Environment
from wheelfactory.core.cell import Backend, Cell
from wheelfactory.core.host import read_host
from wheelfactory.matrix.facts import Context
from wheelfactory.matrix.load import load_matrix
from wheelfactory.verify import emulation as module
from wheelfactory.verify.accuracy import KnownLimit, NumericCase, find_numeric_faults, find_tolerance
from wheelfactory.verify.emulation import EmulatedKernel, EmulationReport, check_in_emulation, predict_minutes
from wheelfactory.verify.gate import Subject
from wheelfactory.verify.gates import verify
from wheelfactory.verify.programs.attention_cases import ARCH, FIRST
from wheelfactory.verify.result import GateResult, Status
from wheelfactory.wheel.corrections import refused_options
from wheelfactory.wheel.read import Wheel

OTHER_LABEL = Cell.parse("fa2.8.3-rocm6.4-torch2.13.0-py3-triton")
"""With the Triton and the payload of `TRITON`."""

KERNELS = "flash_attn/flash_attn_triton_amd"


def case(name: str = "full float16", error: float = 0.0004, **changes: object) -> NumericCase:
    fields: dict[str, object] = {"errors": {"output": (error, 0.0003)}, "exception": None, "launches": 2, **changes}
    return NumericCase.model_validate({"name": name, **fields}, strict=False)


def report(arch: str, *cases: NumericCase) -> EmulationReport:
    sizes = {"vector_registers": 256, "scalar_registers": 100, "local": 16384, "scratch": 44}
    counts = {"variants": 2, "launches": 3, "instructions": 5000, "vector_spills": 11, "scalar_spills": 0}
    kernel = EmulatedKernel(name="attn_fwd", **sizes, **counts)
    found = numbers(Backend.TRITON, *cases or (case(),), torch="2.13.0+cpu", gpu=None)
    return EmulationReport(**dict(found), arch=arch, kernels=(kernel,))


class FakeProgram:
    """A fake program: its report for each arch, and the arguments of its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, ...]] = []
        self.reports: dict[str, EmulationReport | str] = {}

    def run(
        self, command: Sequence[object], *_: object, report_cases: Callable[[int], None], **__: object
    ) -> EmulationReport | str:
        arch = str(command[1])
        self.calls.append(tuple(map(str, command[1:])))
        report_cases(1)
        return self.reports.get(arch, report(arch))

    @property
    def executed(self) -> list[str]:
        return [call[0] for call in self.calls]


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeProgram:
    @contextmanager
    def environment(*_: object) -> Iterator[Environment]:
        yield Environment(tmp_path / "env")

    found = FakeProgram()
    monkeypatch.setattr(module, "run_program", found.run)
    monkeypatch.setattr(module, "open_wheel_environment", environment)
    monkeypatch.setattr(module, "stand_in_base", lambda *_: None)
    monkeypatch.setattr(module, "make_numpy_environment", lambda cache: None)
    return found


def subject_of(path: Path, given: Context, *archs: str, cell: Cell = TRITON) -> Subject:
    return Subject(Wheel.open(path), given, record=build_record(cell, offload_archs=archs), cell=cell)


def result_of(tmp_path: Path, *archs: str, **members: bytes) -> GateResult:
    path = finished_wheel(tmp_path / "wheels", TRITON, members={"flash_attn.py": b"", **members})
    return check_in_emulation(subject_of(path, small_machine(tmp_path / "cache"), *archs))


def test_every_promised_arch_is_executed_and_its_kernels_are_described(tmp_path: Path, program: FakeProgram) -> None:
    result = result_of(tmp_path, "gfx90a", "gfx942", "gfx1100")

    assert (result.gate, result.status, result.findings) == ("emulation", Status.PASSED, ())
    assert result.detail == "Triton 3.7.1 for gfx90a, gfx942, gfx1100, against float64"
    assert result.versions.keys() == {"flash-attn payload", "torch", "triton"}
    assert (result.versions["torch"], result.versions["triton"]) == ("2.13.0+cpu", "3.7.1")
    assert result.figures == {
        f"{arch} {name}": number
        for arch in ("gfx90a", "gfx942", "gfx1100")
        for name, number in (
            ("full float16 error", 0.0004),
            ("full float16 bound", 0.0006),
            ("attn_fwd vector registers", 256),
            ("attn_fwd spilled registers", 11),
            ("attn_fwd local memory bytes", 16384),
        )
    }


def test_one_arch_computes_every_case_and_each_has_another_order_and_its_known_limits(
    tmp_path: Path, program: FakeProgram
) -> None:
    result = result_of(tmp_path, "gfx90a", "gfx942", "gfx950", "gfx1030")

    assert "against float64; skipped: causal backward in bf16 on gfx1030" in result.detail
    assert sorted(program.calls) == [
        ("gfx1030", "arch", "--order", "reversed", "*causal bfloat16"),
        ("gfx90a", "first", "--order", "reversed"),
        ("gfx942", "arch", "--order", "forward"),
        ("gfx950", "arch", "--order", "3"),
    ]


WHERE = "in emulation for gfx942"
FIRST_ARCH, THERE = FEW_ARCHS[0], f"in emulation for {FEW_ARCHS[0]}"
"""Where kernels are executed for real: what other tests compile for it is not compiled again."""


OUTSIDE = "attn_fwd: store outside the buffers: x at byte 64 of dk"


@pytest.mark.parametrize(
    ("given", "found"), [(case(launches=0), "no kernel ran"), (case(findings=(OUTSIDE,)), OUTSIDE)]
)
def test_each_fault_is_one_finding(tmp_path: Path, program: FakeProgram, given: NumericCase, found: str) -> None:
    program.reports = {"gfx942": report("gfx942", given)}

    result = result_of(tmp_path, "gfx90a", "gfx942")

    (finding,) = result.findings
    assert result.status is Status.FAILED
    assert finding.file == "flash_attn-2.8.3+rocm72torch2.13triton-py3-none-any.whl"
    assert (finding.expected, finding.found) == (f"full float16 to run {WHERE}", found)


def test_what_the_emulator_does_not_know_is_neither_passed_nor_failed(tmp_path: Path, program: FakeProgram) -> None:
    unknown = case("causal float16", errors={}, not_run="v_new_f32 v0, v1")
    program.reports = {"gfx942": report("gfx942", case(), unknown)}

    for executions in (1, 2):  # it is no proof
        result = result_of(tmp_path, "gfx90a", "gfx942")
        assert (result.status, result.detail) == (Status.NOT_RUN, "the emulator lacks v_new_f32 v0, v1, for 1 cases")
        assert program.executed.count("gfx942") == executions
    assert result_of(tmp_path).status is Status.NOT_RUN, "a wheel that promises nothing"


def test_a_proof_is_reused_under_another_label_but_not_with_another_emulator(
    tmp_path: Path, program: FakeProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = result_of(tmp_path, "gfx90a", "gfx942")
    path = finished_wheel(tmp_path / "other", OTHER_LABEL, members={"flash_attn.py": b""})
    subject = subject_of(path, small_machine(tmp_path / "cache"), "gfx90a", "gfx942", cell=OTHER_LABEL)

    assert check_in_emulation(subject) == first
    assert sorted(program.executed) == ["gfx90a", "gfx942"]

    monkeypatch.setattr(module, "emulator_id", lambda: "changed")
    check_in_emulation(subject)
    assert sorted(program.executed) == ["gfx90a", "gfx90a", "gfx942", "gfx942"]


def test_the_progress_counts_the_cases_of_all_archs(
    tmp_path: Path, program: FakeProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[tuple[int, int]] = []
    monkeypatch.setattr(module, "announced_progress", lambda _: nullcontext(lambda *counts: shown.append(counts)))
    monkeypatch.setattr(module, "_jobs", lambda _: 1)
    result_of(tmp_path, "gfx90a", "gfx942")
    first, total = len(FIRST), len(FIRST) + len(ARCH)
    assert shown == [(number, total) for number in (0, 1, first, first, first + 1, total)]


@pytest.mark.parametrize(("archs", "jobs", "minutes"), [(12, 2, 2), (12, 1, 5), (3, 2, 1), (1, 8, 1), (0, 1, 1)])
def test_the_minutes_follow_from_archs_and_parallel_programs(
    tmp_path: Path, archs: int, jobs: int, minutes: int
) -> None:
    given = small_machine(tmp_path / "cache")
    given = replace(given, environ={**given.environ, "MAX_JOBS": str(jobs)})
    path = finished_wheel(tmp_path / "wheels", TRITON, members={"flash_attn.py": b""})
    assert predict_minutes(subject_of(path, given), archs) == minutes


@pytest.mark.parametrize("failure", ["timed out after 1800 seconds", report("gfx942", case(exception="no", errors={}))])
def test_a_failure_is_not_cached(tmp_path: Path, program: FakeProgram, failure: EmulationReport | str) -> None:
    program.reports = {"gfx942": failure}
    assert result_of(tmp_path, "gfx90a", "gfx942").status is Status.FAILED
    assert len(list((tmp_path / "cache/proofs").iterdir())) == 1

    program.reports = {}
    assert result_of(tmp_path, "gfx90a", "gfx942").status is Status.PASSED
    assert sorted(program.executed) == ["gfx90a", "gfx942", "gfx942"]


def test_a_cached_report_with_faults_is_not_a_proof(tmp_path: Path, program: FakeProgram) -> None:
    """As after a change of the rule: what is kept is what was seen, not what was thought of it."""
    result_of(tmp_path, "gfx942")
    (proof,) = (tmp_path / "cache/proofs").iterdir()
    proof.write_bytes(proof.read_bytes().replace(b"0.0004", b"0.0040"))

    assert result_of(tmp_path, "gfx942").status is Status.PASSED
    assert program.executed == ["gfx942", "gfx942"]


@pytest.fixture(autouse=True)
def _compile_once(triton_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    share_triton_cache(triton_cache, monkeypatch)


def execute_only(names: Collection[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the cases of `ARCH` that are not named, as known limits: one case takes seconds."""
    others = {f"{each.name} {each.dtype}" for each in ARCH} - {*names}
    assert len(others) + len(names) == len(ARCH)
    limits = tuple(KnownLimit(name, flash_attn=">=2", reason=name, skip_forward=True) for name in sorted(others))
    monkeypatch.setattr(module, "find_cell_limits", lambda subject, arch: limits)


def real_subject(folder: Path, cache: Path, members: Mapping[str, bytes], arch: str, triton: str) -> Subject:
    """A wheel with upstream's code; its kernels are really compiled and executed."""
    torch = {TRITON.torch: MATRIX.torch[TRITON.torch].model_copy(update={"triton": triton})}
    given = small_machine(cache, {**os.environ, **HARMFUL})
    given = replace(given, matrix=MATRIX.model_copy(update={"torch": torch}))
    return subject_of(finished_wheel(folder, TRITON, members=members), given, arch)


HARMFUL = {"FLASH_ATTENTION_TRITON_AMD_REF": "1", "TRITON_INTERPRET": "1", "TRITON_KERNEL_DUMP": "1"}
"""What upstream and Triton would read: a reference in place of the kernels, the interpreter, and dumps."""


def one_report(subject: Subject) -> EmulationReport:
    """The report of the cases for each arch."""
    (arch,) = subject.record.offload_archs
    (found,) = module.emulate(subject, {arch: "arch"}).values()
    assert isinstance(found, EmulationReport), found
    return found


@pytest.mark.slow
def test_upstreams_kernels_are_right_for_an_arch_of_each_family(
    proved: Path, few_archs: Path, triton_wheel: Path
) -> None:
    """The results that other tests and the documentation reuse: Triton links in its own process."""
    matrix, environ = load_matrix(few_archs), dict(os.environ)
    results = verify(triton_wheel, context=Context(matrix, read_host(environ), environ, proved))
    (result,) = (result for result in results if result.gate == "emulation")

    assert (result.status, result.findings) == (Status.PASSED, ())
    assert result.detail.endswith(
        f"raises an error for {'; '.join(sorted(refused_options(TRITON), key=result.detail.find))}"
    )
    for arch in FEW_ARCHS:
        assert 0 < result.figures[f"{arch} full float16 error"] <= result.figures[f"{arch} full float16 bound"] < 0.01
        assert 64 < result.figures[f"{arch} attn_fwd vector registers"] <= 512


@pytest.mark.slow
def test_each_entry_point_is_executed_with_another_triton_that_cannot_link(
    tmp_path: Path, bare_cache: Path, upstream: Mapping[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {"full float16", "packed with empty sequences causal bfloat16", "cached causal bfloat16"}
    execute_only(names, monkeypatch)

    found = one_report(real_subject(tmp_path, bare_cache, upstream, "gfx1100", "3.4.0"))

    assert {each.name for each in found.cases} == names
    assert all(each.launches and not each.error(()) for each in found.cases)
    assert {name.rpartition(".")[2] for name in found.call_counts} == {
        *("fwd", "bwd", "varlen_fwd", "varlen_bwd", "fwd_kvcache")
    }
    assert len(list((bare_cache / "proofs").iterdir())) == 1


@pytest.mark.slow
def test_the_figures_are_the_same_wherever_it_is_executed(
    tmp_path: Path, bare_cache: Path, upstream: Mapping[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest keeps them, and a release must come out the same on every machine; a limit makes it short."""
    limits = (
        KnownLimit("*", flash_attn=">=2", reason="backward"),
        KnownLimit("[!f]*", flash_attn=">=2", reason="most", skip_forward=True),
    )
    monkeypatch.setattr(module, "find_cell_limits", lambda subject, arch: limits)
    here = one_report(real_subject(tmp_path, bare_cache, upstream, FIRST_ARCH, "3.7.1"))
    elsewhere = bare_cache.rename(tmp_path / ("c" * 200))
    (elsewhere / "proofs").rename(tmp_path / "proofs")
    share_triton_cache(tmp_path / "compiled again", monkeypatch)
    there = one_report(real_subject(tmp_path, elsewhere, upstream, FIRST_ARCH, "3.7.1"))

    assert here.model_copy(update={"file": ""}) == there.model_copy(update={"file": ""})
    assert [(each.name, set(each.errors)) for each in here.cases] == [("full float16", {"output"})]
    assert len(here.left_out) == len(ARCH) - 1


SCALE_OFF = ("fwd_prefill.py", "qk_scaled =  qk * SM_SCALE", "qk_scaled =  qk * SM_SCALE * 1.005")
WRONG_GROUP = ("fwd_prefill.py", "off_h_k = off_h_q // GROUP_SIZE", "off_h_k = off_h_q % HK")
GRADIENT_OFF = ("bwd_prefill_split.py", "    dk *= sm_scale", "    dk *= sm_scale * 1.01")
APPEND_ANYWHERE = ("fwd_decode.py", " & (offs_n[:, None] + i + start_idx < N_CTX_K)", "")
ONE_KEY_TOO_FEW = ("fwd_decode.py", "< hi - start_n", "< hi - 1 - start_n")
DOES_NOT_COMPILE = ("fwd_decode.py", "tl.zeros([BLOCK_M], dtype=tl.float32)", "tl.no_zeros([BLOCK_M])")
NEEDS_TOO_MUCH = ("fwd_decode.py", "    num_stages = 1\n", "    num_stages = 8\n")
STORES_BEYOND = ("fwd_prefill.py", "acc.to(Out.dtype.element_ty), mask=o_ptrs_mask)", "acc.to(Out.dtype.element_ty))")
WRITES_NO_MAXIMUM = (
    "fwd_decode.py",
    "tl.store(metadata_ptr, m_i)",
    "pass  # so that the next kernel reads what nobody wrote",
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "wrong", "right"),
    [
        pytest.param(
            (SCALE_OFF, DOES_NOT_COMPILE),
            {
                *(f"cache of 255 float16 to run {THERE}", f"cached causal bfloat16 to run {THERE}"),
                *("output of full float16", "output of packed with empty sequences causal bfloat16"),
                "dq of wide float16",
            },
            set[str](),
            id="scale of the scores off by 0.5 %, does not compile",
        ),
        pytest.param(
            (WRONG_GROUP, GRADIENT_OFF, ONE_KEY_TOO_FEW, APPEND_ANYWHERE),
            {
                *(f"{result} of grouped padded head dim causal float16" for result in ("output", "dq", "dk", "dv")),
                "dk of full float16",
                "output of cached causal bfloat16",
                f"append after the end causal float16 to run {THERE}",
            },
            {"output of full float16", "dq of full float16", "dv of wide float16"},
            id="heads in the wrong group, a gradient off by 1 %, one key too few, values appended after the end",
        ),
        pytest.param(
            (STORES_BEYOND, WRITES_NO_MAXIMUM, NEEDS_TOO_MUCH),
            {
                *(f"full float16 to run {THERE}", f"cached causal bfloat16 to run {THERE}"),
                "output of cache of 255 float16",
            },
            set[str](),
            id="stores beyond the end, reads what nobody wrote, needs more local memory than the GPU has",
        ),
    ],
)
def test_wrong_kernels_are_found_out(
    tmp_path: Path,
    bare_cache: Path,
    upstream: Mapping[str, bytes],
    changes: Sequence[tuple[str, str, str]],
    wrong: set[str],
    right: set[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    execute_only({re.sub(rf"^\w+ of (?!255)| to run {THERE}$", "", each) for each in wrong | right}, monkeypatch)
    changed = dict(upstream)
    for file, good, bad in changes:
        name = f"{KERNELS}/{file}"
        assert good.encode() in changed[name]
        changed[name] = changed[name].replace(good.encode(), bad.encode())

    report = one_report(real_subject(tmp_path, bare_cache, changed, FIRST_ARCH, "3.7.1"))

    faults = find_numeric_faults("a.whl", find_tolerance(TRITON), report, THERE, refused_options(TRITON))
    found = {finding.expected.partition(" with an error of ")[0] for finding in faults}
    assert wrong <= found
    assert not right & found
    assert not (bare_cache / "proofs").exists()


@pytest.mark.slow
def test_a_wheel_that_ends_the_program_is_a_finding(
    tmp_path: Path, bare_cache: Path, upstream: Mapping[str, bytes]
) -> None:
    changed = {**upstream, f"{KERNELS}/interface_fa.py": b"import os; os.abort()"}

    (finding,) = check_in_emulation(real_subject(tmp_path, bare_cache, changed, FIRST_ARCH, "3.7.1")).findings

    assert (finding.expected, finding.found) == (f"attention to run {THERE}", "killed by SIGABRT")
