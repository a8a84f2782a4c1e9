"""Situations of people with AMD GPUs: each gets the verdict that a maintainer would give, in words and commands."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest

from doctor.known import FACTS, KNOWN
from doctor.situations import CASES, full_release, image_cases, machine_of
from wheelfactory.doctor import program
from wheelfactory.doctor.program import add_options, diagnose_and_report
from wheelfactory.doctor.published_wheels import parse_wheels
from wheelfactory.matrix.expand import expand


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A release with a wheel for each cell of the matrix."""
    return str(full_release(tmp_path_factory.mktemp("release")))


def answer_to(case: Mapping[str, Any], site: str, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[int, str]:
    """Exit code and output of the doctor on the machine of a case."""
    machine = machine_of(case)
    monkeypatch.setattr(program, "detect_machine", lambda *_: machine)
    monkeypatch.setattr(program, "parse_wheels", parse_once)
    parser = argparse.ArgumentParser()
    add_options(parser, ("python3", "doctor.py"))
    given = [*case.get("options", ()), *arguments]
    options, lines = parser.parse_args(given, argparse.Namespace(environ={})), list[str]()
    python = machine.python.executable
    code = diagnose_and_report(options, python, FACTS, "", site, show=lines.append, tell=lambda _: None)
    return code, "\n".join(lines) + "\n"


parse_once = cache(parse_wheels)
"""The manifest of the site takes half a second to parse."""

_FIRST_WORDS = {"Works": "works-keep", "Install": "install", "Cannot": "cannot", "Fix": "fix-first"}


def verdict_of(text: str) -> str | None:
    """Return the verdict that a text begins with."""
    return _FIRST_WORDS.get(text.partition(" ")[0].rstrip(";,"))


def as_list(value: Any) -> list[Any]:
    """Return a value of the table as a list of alternatives."""
    return value if isinstance(value, list) else [value]


@pytest.mark.parametrize("name", CASES)
def test_each_situation_gets_the_answer_of_a_maintainer(site: str, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    case = CASES[name]
    code, text = answer_to(case, site, monkeypatch)
    lower = text.lower()
    assert verdict_of(text) in as_list(case["verdict"]), text
    assert [one for one in case["says"] if not any(str(word).lower() in lower for word in as_list(one))] == [], text
    assert [word for word in case.get("never", ()) if str(word).lower() in lower] == [], text
    assert code in as_list(case["exit"]), text
    assert_readable(text)


def assert_readable(text: str) -> None:
    """Check that an answer is short, that its steps are numbered, and that a shell can read each command."""
    lines = text.splitlines()
    assert len(lines) <= 12, text
    steps = [int(number) for number in re.findall(r"^(\d)\. ", text, re.MULTILINE)]
    assert steps == list(range(1, len(steps) + 1))
    for command in (line for line in lines if line.startswith("  ")):
        words = shlex.split(command)  # raises ValueError for an open quote
        assert words
        assert "\\" not in command, "one line"


def test_every_image_gets_the_wheel_of_its_own_torch_or_a_triton_wheel(
    site: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {(cell.rocm, cell.python, cell.torch) for cell in expand(KNOWN).cells if cell.amd_torch}
    assert own
    answers = {tag: answer_to(case, site, monkeypatch) for tag, case in image_cases().items()}
    old = {tag for tag in answers if re.search(r"release[-_]2\.[1-4]\.", tag)}
    assert len(answers) > len(old)
    for tag, (code, text) in answers.items():
        if tag in old:  # flash-attn's Triton backend needs Triton 3.1, so torch 2.5
            assert text.startswith("Cannot, because no wheel is for torch 2."), text
        else:
            found = re.search(r"rocm(\d\.\d+).*py(3\.\d+)_pytorch_release_((2\.\d+)[\d.]+)", tag)
            assert found
            label = f"torch{found[4]}{'amd' if found.groups()[:3] in own else 'triton'}"
            assert (code, label in text, "Install torch" in text) == (0, True, False), text
