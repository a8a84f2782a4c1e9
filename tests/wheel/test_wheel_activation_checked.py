"""A Triton wheel computes right, or refuses by name, what upstream's kernels get wrong in silence.

On an emulator. Each case fails with upstream's own files, where one of them ends the process.
"""

from __future__ import annotations

import hashlib
import os
import runpy
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from few_archs import FEW_ARCHS
from preview_sources import AITER, FLASH_ATTN, read_upstream
from shared_folder import make_once, share_triton_cache
from stage_arguments import local_executor
from wheel_factory import CK, TRITON, build_record, finished_wheel, make_wheel, read_zip
from wheelfactory.build.environments import (
    Base,
    make_build_environment,
    make_numpy_environment,
    make_triton_environment,
    open_wheel_environment,
)
from wheelfactory.core.cell import Cell
from wheelfactory.core.host import Host, read_host
from wheelfactory.core.label import Label
from wheelfactory.core.progress import ignore_progress
from wheelfactory.matrix.facts import Context
from wheelfactory.matrix.load import load_matrix
from wheelfactory.pipeline.build import build_cell
from wheelfactory.verify.accuracy import NumericReport, error_bounds, find_numeric_faults, find_tolerance
from wheelfactory.verify.emulation import EXECUTE, EmulationReport, emulate
from wheelfactory.verify.gate import Subject
from wheelfactory.verify.programs.attention_cases import FIRST
from wheelfactory.verify.proofs import run_program
from wheelfactory.wheel import corrections
from wheelfactory.wheel.corrections import corrected_members, read_corrections, read_options, refused_options
from wheelfactory.wheel.read import BuildRecord, Wheel
from wheelfactory.wheel.rewrite import finish_pure_wheel, finish_wheel

CHECKED_COMPILED = Path(corrections.__file__).with_name("activation") / "checked_compiled.py"

OLDER, PREVIEW = "fa2.7.4.post1-rocm7.2-torch2.13.0-py3-triton", "fa2.8.4+git4a948e9-rocm7.2-torch2.13.0-py3-triton"
"""Cells with other kernels than 2.8.3; 2.8.3 to 2.8.3.post2 have the same."""

ALIKE = ("causal *", "wide *", "packed causal *", "packed float16", "uneven causal *", "* bfloat16")
"""Patterns of cases without options that other cases stand for: their kernels differ in constants or in the dtype. The
gate runs them."""

ARCH = FEW_ARCHS[0]
"""The arch for which the gate runs every case."""


@pytest.fixture(scope="module")
def older_wheel(cache: Path, few_archs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Triton wheel of 2.7.4.post1 as this factory makes it."""
    given = Context(load_matrix(few_archs), Host(cores=2, memory_gib=6), {"PATH": os.environ["PATH"]}, cache)

    def build(folder: Path) -> None:
        build_cell(local_executor(given), Cell.parse(OLDER), folder, ignore_progress, context=given)

    return next(make_once(tmp_path_factory.getbasetemp(), "older", build).glob("*.whl"))


@pytest.fixture(scope="module")
def preview_wheels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The Triton wheel of the preview, finished from upstream's files, and its aiter."""
    folder, cell = tmp_path_factory.mktemp("preview"), Cell.parse(PREVIEW)
    record: BuildRecord = build_record(TRITON, cell=cell.id, label=str(Label.from_cell(cell)))
    raw = make_wheel(folder, version="2.8.4", members=read_upstream(FLASH_ATTN, "flash_attn/"))
    kernels = raw_aiter(folder)
    dist = folder / "dist"
    dist.mkdir()
    return [finish_wheel(raw, record, dist), finish_pure_wheel(kernels, "0.0.20260602", frozenset(), dist)]


def raw_aiter(folder: Path) -> Path:
    metadata = "Metadata-Version: 2.1\nName: amd-aiter\nVersion: 0.0.0\n"
    members = read_upstream(AITER, "aiter/")
    return make_wheel(folder, name="amd_aiter", version="0.0.0", metadata=metadata, members=members)


@pytest.fixture(scope="module", params=["Triton 2.7.4.post1", "Triton preview", "Triton 2.8.3"])
def kind(request: pytest.FixtureRequest) -> str:
    """A kind of wheel of options.yaml."""
    return str(request.param)


@pytest.fixture(scope="module")
def report(kind: str, request: pytest.FixtureRequest) -> NumericReport:
    """What every small case gives: for 2.8.3 as the gate saw it, which sets the variable; the others without it."""
    if kind == "Triton 2.8.3":
        return find_proof(*map(request.getfixturevalue, ("triton_wheel", "few_archs", "proved")))
    cache, scratch = map(request.getfixturevalue, ("cache", "scratch"))
    if kind == "Triton preview":
        return run_cases(request.getfixturevalue("preview_wheels"), cache, scratch)
    return run_cases([request.getfixturevalue("older_wheel")], cache, scratch)


def find_proof(wheel: Path, matrix: Path, cache: Path) -> NumericReport:
    """Return what the gate kept of a wheel."""
    context = Context(load_matrix(matrix), read_host(os.environ), os.environ, cache)
    found = emulate(Subject(Wheel.open(wheel), context, record=build_record(TRITON), cell=TRITON), {ARCH: "first"})[
        ARCH
    ]
    assert isinstance(found, EmulationReport), found
    return found


@pytest.fixture(scope="module")
def scratch(triton_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A working folder of programs that find kernels which another one compiled."""
    with pytest.MonkeyPatch.context() as patch:
        share_triton_cache(triton_cache, patch)
        yield tmp_path_factory.mktemp("scratch")


def run_cases(wheels: list[Path], cache: Path, scratch: Path, only: Collection[str] = ()) -> NumericReport:
    """Run the cases of `FIRST` but `ALIKE`, or those whose names are in `only`."""
    layers = [make_build_environment(cache), make_triton_environment(cache, "3.7.1"), make_numpy_environment(cache)]
    others = [f"{each.name} *" for each in FIRST if each.name not in only] if only else ALIKE
    command: list[str | Path] = [EXECUTE, ARCH, "first", "grouped*", *(f"!{pattern}" for pattern in others)]
    environ = {"PATH": os.environ["PATH"]}
    with open_wheel_environment(cache, Base.of(*layers), *wheels) as environment:
        found = run_program(command, EmulationReport, environment.python, environ, scratch=scratch, timeout=3600)
    assert isinstance(found, EmulationReport), found
    return found


@pytest.mark.slow
def test_numbers_are_right_and_options_are_refused_as_the_table_says(kind: str, report: NumericReport) -> None:
    cell = Cell.parse({"Triton 2.8.3": TRITON.id, "Triton 2.7.4.post1": OLDER, "Triton preview": PREVIEW}[kind])
    assert [*find_numeric_faults("wheel", find_tolerance(cell), report, "in emulation", refused_options(cell))] == []


@pytest.mark.slow
def test_an_option_that_the_kernels_ignore_is_refused_with_what_to_use(kind: str, report: NumericReport) -> None:
    words = {
        "window gradients float16": ["window_size_left=8", "flash-attention-amd", "sdpa"],
        "softcap float16": ["softcap is not supported", "flash-attention-amd", "eager"],
        "pages packed float16": ["paged attention", "flash-attention-amd"],
        "left padding float16": ["cache_leftpad", "a cache without padding"],
    }
    if kind != "Triton preview":
        words = {
            "window float16": ["window_size=(8, 3)", "Mistral", "CK wheel", "sdpa"],
            "softcap float16": ["softcap=5.0", "Gemma 2", "flash-attention-amd", "eager"],
            "pages float16": ["block_table", "flash-attention-amd"],
            "left padding float16": ["cache_leftpad"],
            "far offsets float16": ["32-bit offsets", "smaller batches"],
        }
    messages = {case.name: str(case.refused) for case in report.cases}
    assert [(name, word) for name, each in words.items() for word in each if word not in messages[name]] == []


@pytest.mark.slow
def test_an_error_names_exactly_the_wheels_that_compute_the_option(report: NumericReport) -> None:
    """By the table of options; a wheel that raises the error does not name its own release."""
    columns, table = {"the CK wheel": "CK", "flash-attn 2.8.3": "Triton 2.8.3"}, read_options().refused
    refused = [case for case in report.cases if case.refused and case.option]
    named = {case.name: {name for name in columns if name in str(case.refused)} for case in refused}
    assert named == {
        case.name: {name for name, column in columns.items() if column not in table[case.option]} for case in refused
    }


@pytest.mark.slow
def test_every_option_of_the_table_but_the_first_rows_has_a_case(report: NumericReport) -> None:
    """The first rows are cases without options."""
    measured = {case.option for case in report.cases} - {""}
    rows = list(read_options().refused)
    assert measured == {*rows[rows.index("dropout_p") :], "float32"}


@pytest.mark.slow
def test_an_aiter_without_corrections_is_refused_for_what_it_computes_wrongly(
    preview_wheels: list[Path], cache: Path, scratch: Path, tmp_path: Path
) -> None:
    wrong = ("dropout", "cache of 255", "very negative scores", "packed", "left padding")
    found = run_cases([preview_wheels[0], raw_aiter(tmp_path)], cache, scratch, (*wrong, "window", "alibi"))

    messages = {case.name.removesuffix(" float16"): str(case.refused) for case in found.cases}
    for case in wrong:
        assert "so this call would give wrong numbers" in messages[case], case
    tolerance = find_tolerance(Cell.parse(PREVIEW))
    right = {
        case.name
        for case in found.cases
        if case.errors and all(error <= bound for error, bound in error_bounds(case, tolerance).values())
    }
    assert {"window float16", "alibi float16"} <= right


@pytest.mark.slow
def test_a_finished_wheel_has_every_corrected_line(
    triton_wheel: Path, older_wheel: Path, preview_wheels: list[Path]
) -> None:
    wheels = [read_zip(path) for path in (triton_wheel, older_wheel, *preview_wheels)]
    for correction in read_corrections():
        if correction.file.startswith("csrc/") or 10 in correction.lines:
            continue  # corrected in the sources, and of 2.6.3, which has no Triton wheel
        files = [members[correction.file].decode() for members in wheels if correction.file in members]
        assert any(all(line.text in text for line in correction.lines.values()) for text in files), correction.file


def test_a_file_that_is_not_the_known_one_is_left_alone(tmp_path: Path) -> None:
    name = read_corrections()[0].file
    wheel = Wheel.open(finished_wheel(tmp_path, TRITON, members={name: b"another release's text\n"}))

    assert corrected_members(wheel) == {}


@pytest.mark.parametrize("cell", [CK, TRITON])
def test_wheels_of_both_backends_are_corrected(cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A CK wheel has the Triton code too, which a variable selects."""
    text = b"\n" * 900
    known = read_corrections()[0].model_copy(update={"sha256": hashlib.sha256(text).hexdigest()})
    monkeypatch.setattr("wheelfactory.wheel.corrections.read_corrections", lambda: (known,))
    wheel = Wheel.open(finished_wheel(tmp_path, cell, members={known.file: text}))

    assert set(corrected_members(wheel)) == {known.file, "flash_attn/flash_attn_triton_amd/checked_calls.py"}


# -- the compiled kernels of Composable Kernel, which only take the arguments here


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A compiled extension whose functions return their arguments."""
    extension = ModuleType("flash_attn_2_cuda")
    extension.__file__ = "/site/flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so"
    for name in ("fwd", "bwd", "varlen_fwd", "varlen_bwd", "fwd_kvcache"):
        setattr(extension, name, lambda *given: given)
    monkeypatch.setitem(sys.modules, extension.__name__, extension)
    runpy.run_path(str(CHECKED_COMPILED))
    return extension


# the arguments of each function in the bindings of 2.7.4.post1 to 2.8.3.post2, up to softcap
ARGUMENTS = {
    "fwd": "q k v out alibi_slopes p_dropout scale causal left right softcap",
    "bwd": "dout q k v out lse dq dk dv alibi_slopes p_dropout scale causal left right softcap",
    "varlen_fwd": "q k v out starts_q starts_k seqused_k leftpad_k block_table alibi_slopes queries keys p_dropout "
    "scale zero causal left right softcap",
    "varlen_bwd": "dout q k v out lse dq dk dv starts_q starts_k alibi_slopes queries keys p_dropout scale zero causal "
    "left right softcap",
    "fwd_kvcache": "q k_cache v_cache k v cache_seqlens rotary_cos rotary_sin cache_batch_idx cache_leftpad "
    "block_table alibi_slopes out scale causal left right softcap",
}
IGNORED = ("softcap", "seqused_k", "leftpad_k", "cache_leftpad")
CALLS = [(function, option) for function, names in ARGUMENTS.items() for option in names.split()]


@pytest.mark.parametrize(("function", "option"), CALLS)
def test_a_compiled_wheel_refuses_exactly_what_its_bindings_ignore(
    function: str, option: str, compiled: ModuleType
) -> None:
    given = [0.0 if name == "softcap" else None for name in ARGUMENTS[function].split()]
    assert getattr(compiled, function)(*given) == tuple(given)
    given[ARGUMENTS[function].split().index(option)] = 5.0
    if option in IGNORED:
        with pytest.raises(NotImplementedError, match=f"ignore {option}"):
            getattr(compiled, function)(*given)
    else:
        assert getattr(compiled, function)(*given) == tuple(given)
