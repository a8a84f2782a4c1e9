"""A Triton wheel of 2.8.3 computes right, or refuses by name, what upstream's kernels get wrong in silence.

In Triton's interpreter, by both ways to the backend. Upstream's own files fail in most of the gates' cases, and end the
process in one.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from wheel_factory import TRITON, finished_wheel
from wheelfactory.build.environments import (
    make_build_environment,
    make_interpreter_environment,
    make_triton_environment,
    open_wheel_environment,
)
from wheelfactory.core.cell import Backend
from wheelfactory.verify.accuracy import (
    NUMBERS_PROGRAM,
    NumericReport,
    find_numeric_faults,
    find_tolerance,
    refused_options,
)
from wheelfactory.verify.proofs import run_program
from wheelfactory.wheel.activation.corrections import corrected_members, read_corrections
from wheelfactory.wheel.build_record import read_build_record
from wheelfactory.wheel.read import Wheel

REFUSED = ("window_size", "window_size backward", "softcap", "block_table", "cache_leftpad", "offsets")


@pytest.fixture(scope="module", params=["TRUE", None], ids=["variable", "module"])
def report(
    request: pytest.FixtureRequest, triton_wheel: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> NumericReport:
    """What the gates' cases give, by both ways to the backend."""
    layers = [
        make_build_environment(cache),
        make_triton_environment(cache, "3.7.1"),
        make_interpreter_environment(cache),
    ]
    folders = [layer.site_packages for layer in layers]
    environ = {"PATH": os.environ["PATH"], "TRITON_INTERPRET": "1"}
    if request.param:
        environ["FLASH_ATTENTION_TRITON_AMD_ENABLE"] = request.param
    command = (NUMBERS_PROGRAM, "flash_attn", "cpu", "small")
    with open_wheel_environment(cache, triton_wheel, layers[0].python, layers[0].version, folders) as environment:
        scratch = tmp_path_factory.mktemp("scratch")
        found = run_program(command, NumericReport, environment, environ, scratch=scratch, timeout=600)
    assert isinstance(found, NumericReport), found
    return found


@pytest.mark.slow
def test_all_numbers_are_right(report: NumericReport) -> None:
    assert list(find_numeric_faults("wheel", find_tolerance(TRITON), report, "in the interpreter")) == []


@pytest.mark.slow
def test_what_the_kernels_ignore_is_refused_with_what_to_use(report: NumericReport) -> None:
    assert refused_options(report) == REFUSED
    words = {
        "window causal float16": ["window_size=(8, 0)", "Mistral", "CK wheel", "sdpa"],
        "softcap float16": ["softcap=5.0", "Gemma 2", "flash-attention-amd", "eager"],
        "pages float16": ["block_table", "CK wheel"],
        "left padding float16": ["cache_leftpad"],
        "far offsets float16": ["32-bit offsets", "smaller batches"],
    }
    messages = {case.name: str(case.refused) for case in report.cases}
    assert [(name, word) for name, each in words.items() for word in each if word not in messages[name]] == []


@pytest.mark.slow
def test_the_build_record_names_every_corrected_line(triton_wheel: Path, upstream: Mapping[str, bytes]) -> None:
    record = read_build_record(Wheel.open(triton_wheel))
    assert record
    assert record.corrections
    known = {(one.file, tuple(one.lines)): one for one in read_corrections()}
    texts = {
        (name, number): (upstream[name].decode().split("\n")[number - 1], known[name, numbers].lines[number].text)
        for name, numbers in record.corrections.items()
        for number in numbers
    }
    assert len(texts) == 13
    assert [place for place, (found, expected) in texts.items() if found != expected] == []


def test_a_file_that_is_not_the_known_one_is_left_alone(tmp_path: Path) -> None:
    name = read_corrections()[0].file
    wheel = Wheel.open(finished_wheel(tmp_path, TRITON, members={name: b"another release's text\n"}))

    assert corrected_members(wheel, Backend.TRITON) == {}


def test_a_correction_is_for_the_wheels_of_its_backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = b"\n" * 900
    changed = {"sha256": hashlib.sha256(text).hexdigest(), "backend": Backend.TRITON}
    known = read_corrections()[0].model_copy(update=changed)
    monkeypatch.setattr("wheelfactory.wheel.activation.corrections.read_corrections", lambda: (known,))
    wheel = Wheel.open(finished_wheel(tmp_path, TRITON, members={known.file: text}))

    assert list(corrected_members(wheel, Backend.TRITON)) == [known.file]
    assert corrected_members(wheel, Backend.CK) == {}
