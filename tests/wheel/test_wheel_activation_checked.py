"""A Triton wheel computes right, or refuses by name, what upstream's kernels get wrong in silence.

In Triton's interpreter. Each case fails with upstream's own files, where one of them ends the process.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from shared_folder import make_once
from stage_arguments import StageArguments, build_arguments, local_executor
from wheel_factory import CK, TRITON, finished_wheel, read_zip
from wheelfactory.build.environments import (
    make_build_environment,
    make_interpreter_environment,
    make_triton_environment,
    open_wheel_environment,
)
from wheelfactory.core.cell import Cell
from wheelfactory.core.host import Host
from wheelfactory.core.progress import ignore_progress
from wheelfactory.matrix.load import load_matrix
from wheelfactory.pipeline.build import build_cell
from wheelfactory.wheel.activation.corrections import corrected_members, read_corrections
from wheelfactory.wheel.read import Wheel

PROGRAM = Path(__file__).with_name("checked_calls_program.py")
ROUNDING = 0.004
"""The largest error; contiguous inputs have a third of it."""


OLDER = "2.7.4.post1"
"""The release with an older backward pass; 2.8.3 to 2.8.3.post2 have the same kernels."""


@pytest.fixture(scope="module")
def older_wheel(cache: Path, few_archs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Triton wheel of that release as this factory makes it."""
    given: StageArguments = {
        "matrix": load_matrix(few_archs),
        "host": Host(cores=2, memory_gib=6),
        "environ": {"PATH": os.environ["PATH"]},
        "cache": cache,
    }
    cell = Cell.parse(f"fa{OLDER}-rocm7.2-torch2.13.0-py3-triton")

    def build(folder: Path) -> None:
        build_cell(local_executor(given), cell, folder, ignore_progress, **build_arguments(given))

    return next(make_once(tmp_path_factory.getbasetemp(), "older", build).glob("*.whl"))


@pytest.fixture(scope="module", params=["2.8.3", OLDER])
def wheel(request: pytest.FixtureRequest) -> Path:
    path: Path = request.getfixturevalue("older_wheel" if request.param == OLDER else "triton_wheel")
    return path


@pytest.fixture(scope="module", params=["TRUE", None], ids=["variable", "module"])
def found(request: pytest.FixtureRequest, wheel: Path, cache: Path) -> dict[str, Any]:
    """What the program found, by both ways to the backend."""
    layers = [
        make_build_environment(cache),
        make_triton_environment(cache, "3.7.1"),
        make_interpreter_environment(cache),
    ]
    folders = [layer.site_packages for layer in layers]
    environ = {"PATH": "/usr/bin:/bin", "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    if request.param:
        environ["FLASH_ATTENTION_TRITON_AMD_ENABLE"] = request.param
    with open_wheel_environment(cache, wheel, layers[0].python, layers[0].version, folders) as environment:
        done = subprocess.run(
            [environment.python, "-IB", "-W", "ignore", PROGRAM], env=environ, capture_output=True, text=True
        )
    assert done.returncode == 0, done.stderr[-2000:]
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        "contiguous",
        "transposed",
        "packed keys",
        "keys and values of two layouts",
        "expanded gradient",
        "very negative scores",
        "cache of 255",
        "unused rows",
        "empty cache",
        "log-sum-exp of a cache",
        "packed sequences",
        "packed sequences, causal",
        "gradients of rows without keys",
        "padded head dim",
    ],
)
def test_numbers_are_right(case: str, found: dict[str, Any]) -> None:
    assert found[case] < ROUNDING


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("window", ["window_size=(8, 0)", "Mistral", "CK wheel", "sdpa"]),
        ("softcap", ["softcap=5.0", "Gemma 2", "flash-attention-amd", "eager"]),
        ("pages", ["block_table", "CK wheel"]),
        ("left padding", ["cache_leftpad"]),
        ("beyond 32 bits", ["32-bit offsets", "smaller batches"]),
    ],
)
def test_what_the_kernels_ignore_is_refused_with_what_to_use(
    case: str, words: list[str], found: dict[str, Any]
) -> None:
    assert [word for word in words if word not in found[case]] == []


@pytest.mark.slow
def test_a_window_that_hides_no_key_is_computed(found: dict[str, Any]) -> None:
    assert found["window that hides nothing"] == ""


@pytest.mark.slow
def test_rows_without_keys_have_a_log_sum_exp_of_minus_infinity(found: dict[str, Any]) -> None:
    assert found["rows without keys"] == [True, True]


@pytest.mark.slow
def test_dropout_differs_between_calls_and_repeats_with_a_seed(found: dict[str, Any], wheel: Path) -> None:
    expected = "dropout is not supported on AMD's Triton Backend yet" if OLDER in wheel.name else [False, True]
    assert found["dropout"] == expected


@pytest.mark.slow
def test_an_append_after_the_end_of_a_cache_writes_nothing_there(found: dict[str, Any]) -> None:
    assert found["append after the end"] == 0


@pytest.mark.slow
def test_a_finished_wheel_has_every_corrected_line(triton_wheel: Path, older_wheel: Path) -> None:
    wheels = [read_zip(path) for path in (triton_wheel, older_wheel)]
    for correction in read_corrections():
        files = [members[correction.file].decode().split("\n") for members in wheels if correction.file in members]
        assert any(
            all(lines[number - 1] == line.text for number, line in correction.lines.items()) for lines in files
        ), correction.file


def test_a_file_that_is_not_the_known_one_is_left_alone(tmp_path: Path) -> None:
    name = read_corrections()[0].file
    wheel = Wheel.open(finished_wheel(tmp_path, TRITON, members={name: b"another release's text\n"}))

    assert corrected_members(wheel, TRITON) == {}


def test_only_triton_wheels_are_corrected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = b"\n" * 900
    known = read_corrections()[0].model_copy(update={"sha256": hashlib.sha256(text).hexdigest()})
    monkeypatch.setattr("wheelfactory.wheel.activation.corrections.read_corrections", lambda: (known,))
    wheel = Wheel.open(finished_wheel(tmp_path, TRITON, members={known.file: text}))

    assert list(corrected_members(wheel, TRITON)) == [known.file]
    assert corrected_members(wheel, CK) == {}
