"""Proofs: programs run once for all labels; only undamaged cached reports count."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from wheel_factory import CK, PACKAGE, TRITON, finished_wheel
from wheelfactory.build.environments import Environment, make_empty_environment
from wheelfactory.core.cell import Cell
from wheelfactory.verify.proofs import ProgramReport, ProofCache, ProofKey, payload_sha256, program_environ, run_program
from wheelfactory.wheel.read import Wheel

OTHER_LABEL = Cell.parse("fa2.8.3-rocm6.4-torch2.9.1-py3-triton")


class Answer(ProgramReport):
    number: int


def is_right(answer: Answer) -> bool:
    return answer.number >= 42


def question(folder: Path, text: str = "print(42)") -> ProofKey:
    program = folder / "program.py"
    program.write_text(text)
    return ProofKey(program, ("gfx942",), "a" * 64, ("torch==2.13.0+cpu", "triton==3.7.1"))


def payload(path: Path) -> str:
    return payload_sha256(Wheel.open(path))


@pytest.mark.parametrize(
    "changes",
    [
        {"flash_attn/__init__.py": b"import os\n"},
        {"flash_attn/more.py": b""},
        {name: PACKAGE[other] for name, other in zip(PACKAGE, reversed(tuple(PACKAGE)), strict=True)},
    ],
    ids=["other content", "one more", "contents swapped"],
)
def test_another_payload_has_another_sha256_and_another_label_the_same(
    tmp_path: Path, changes: dict[str, bytes]
) -> None:
    plain = payload(finished_wheel(tmp_path, TRITON))
    assert payload(finished_wheel(tmp_path / "changed", TRITON, members={**PACKAGE, **changes})) != plain
    assert payload(finished_wheel(tmp_path, OTHER_LABEL)) == plain


def test_a_report_is_found_by_its_own_key_only(tmp_path: Path) -> None:
    asked, kept = question(tmp_path), ProofCache(tmp_path / "proofs")
    kept.keep(asked, Answer(number=42), is_right)
    assert kept.find(asked, Answer, is_right) == Answer(number=42)
    others = (
        replace(asked, arguments=("gfx90a",)),
        replace(asked, payload="b" * 64),
        replace(asked, environment=("torch==2.13.0+cpu", "triton==3.8.0")),
    )
    assert [kept.find(other, Answer, is_right) for other in others] == [None] * 3
    assert kept.find(question(tmp_path, "print(43)"), Answer, is_right) is None
    (tmp_path / "sibling.py").write_text("number = 43")
    assert kept.find(question(tmp_path), Answer, is_right) is None, "a program can import what is in its folder"


def test_only_a_report_that_is_right_is_kept_and_found(tmp_path: Path) -> None:
    asked, kept = question(tmp_path), ProofCache(tmp_path / "proofs")
    for wrong in (Answer(number=41), "timed out"):
        assert kept.keep(asked, wrong, is_right) == wrong
    assert not kept.folder.exists()
    kept.keep(asked, Answer(number=42), is_right)
    assert kept.find(asked, Answer, lambda answer: answer.number > 42) is None


def test_a_damaged_proof_is_none_and_is_replaced(tmp_path: Path) -> None:
    asked, kept = question(tmp_path), ProofCache(tmp_path / "proofs")
    kept.keep(asked, Answer(number=42), is_right)
    (path,) = kept.folder.iterdir()
    good = path.read_bytes()
    for damaged in (good[: len(good) // 2], b"", b"\xff\xfe", b"[]", good.replace(b'"number"', b'"digit"')):
        path.write_bytes(damaged)
        assert kept.find(asked, Answer, is_right) is None

    kept.keep(asked, Answer(number=43), is_right)
    assert kept.find(asked, Answer, is_right) == Answer(number=43)
    assert len(list(kept.folder.iterdir())) == 1


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return make_empty_environment(tmp_path_factory.mktemp("python") / "env")


def answer_of(python: Environment, folder: Path, text: str, timeout: float = 60) -> Answer | str:
    asked = question(folder, text)
    environ = {"PATH": os.defpath}
    return run_program(asked.command, Answer, python.python, environ, scratch=folder / "scratch", timeout=timeout)


def test_the_report_is_the_last_line_of_output(tmp_path: Path, python: Environment) -> None:
    text = "print('{\"number\": 1}'); print('noise'); print('{\"number\": 42}')"
    assert answer_of(python, tmp_path, text) == Answer(number=42)


def test_a_program_gets_its_arguments_and_a_home_of_its_own(tmp_path: Path, python: Environment) -> None:
    text = """
import json, os, pathlib, sys
home = {os.environ[name] for name in ("HOME", "TMPDIR", "TRITON_CACHE_DIR")}
assert home == {os.getcwd()}, home
assert sys.argv[1:] == ["gfx942"] and sys.flags.isolated and sys.dont_write_bytecode
given = {"HOME", "OMP_NUM_THREADS", "PATH", "TMPDIR", "TRITON_CACHE_DIR"}
assert set(os.environ) - {"LC_CTYPE"} == given, os.environ  # set by Python itself if there is no locale
print('{"number": 1}')
"""
    answer = answer_of(python, tmp_path, text)
    assert isinstance(answer, Answer)
    assert answer.number == 1


def test_compiler_errors_are_logged_once(tmp_path: Path, python: Environment, caplog: pytest.LogCaptureFixture) -> None:
    text = "import sys\nprint('a warning\\nerror: no\\nerror: no', file=sys.stderr)\nprint('{\"number\": 1}')"
    with caplog.at_level("INFO", logger="wheelfactory"):
        answer_of(python, tmp_path, text)
    assert caplog.messages == ["error: no"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param("raise RuntimeError('no\\nkernel')", "kernel", id="raises"),
        pytest.param("raise SystemExit(3)", "exit status 3", id="ends without a word"),
        pytest.param(
            "import os, sys\nprint('early', 'dense', 'fatal', sep='\\n', file=sys.stderr, flush=True)\nos.abort()",
            "killed by SIGABRT; dense; fatal",
            id="crashes",
        ),
        pytest.param(
            "import os, sys\nprint('at: dense', 'at: cached', 'a fault', 'at node 1', 'reason', sep='\\n', "
            "file=sys.stderr, flush=True)\nos.abort()",
            "killed by SIGABRT; at: cached; at node 1; reason",
            id="says where it was, and the GPU's driver much after that",
        ),
        pytest.param("pass", "it exited with 0, but printed no report", id="says nothing"),
        pytest.param("print('{\"digit\": 1}')", "it exited with 0, but printed no report", id="other report"),
    ],
)
def test_a_program_without_report_gives_the_reason(tmp_path: Path, python: Environment, text: str, why: str) -> None:
    assert answer_of(python, tmp_path, text) == why


def test_a_program_that_hangs_is_killed(tmp_path: Path, python: Environment) -> None:
    answer = answer_of(python, tmp_path, "import time; time.sleep(600)", timeout=0.6)
    assert answer == "timed out after 1 seconds"


def test_programs_get_only_the_listed_variables(tmp_path: Path) -> None:
    needed = {"PATH": "/bin", "LD_LIBRARY_PATH": "/rocm", "HIP_VISIBLE_DEVICES": "1", "ROCM_PATH": "/rocm"}
    harmful = dict.fromkeys(
        (
            *("TRITON_INTERPRET", "TRITON_CACHE_DIR", "FLASH_ATTENTION_TRITON_AMD_REF", "BWD_MODE", "DEBUG_TRITON"),
            *("AMDGCN_USE_BUFFER_OPS", "DISABLE_LLVM_OPT", "PYTHONPATH", "USE_SINGLE_BWD_KERNEL"),
        ),
        "1",
    )
    environ = {**needed, **harmful}

    assert program_environ(environ, CK) == needed
    triton = {"FLASH_ATTENTION_TRITON_AMD_ENABLE": "TRUE"}
    assert program_environ(environ, TRITON) == {**needed, **triton}
