"""Evaluate GitHub Actions expressions with GitHub's own evaluator, in one node process."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any, TypeAlias

from npm_tools import node, npm_package

Value: TypeAlias = Any
"""A value of YAML, JSON or an expression: None, bool, a number, str, list or dict."""

_PROGRAM = Path(__file__).with_name("evaluator.mjs")
_STATUS = re.compile(r"\b(success|failure|always|cancelled)\s*\(", re.IGNORECASE)
_STRING = re.compile(r"'(?:[^']|'')*'")
STATUSES = ("success", "failure", "always", "cancelled")


class ExpressionError(Exception):
    """An expression that GitHub's evaluator rejects."""


@dataclass(frozen=True)
class Scope:
    """Contexts and functions of an expression; they depend on the key of the workflow."""

    contexts: Mapping[str, Value]
    statuses: Mapping[str, bool] | None = None
    """Values of success(), failure(), always() and cancelled(), if they are available."""
    folder: Path | None = None
    """Folder of hashFiles(), if it is available."""


class Expressions:
    """A client of the evaluator process."""

    def __init__(self, requests: IO[str], answers: IO[str]) -> None:
        self._requests, self._answers = requests, answers

    def evaluate(self, expression: str, scope: Scope) -> tuple[Value, str]:
        """Return the value of an expression (without ``${{ }}``), and its text. Raises `ExpressionError`."""
        request = {"expression": expression, "contexts": scope.contexts, "statuses": scope.statuses or {}}
        print(json.dumps({**request, "folder": scope.folder and str(scope.folder)}), file=self._requests, flush=True)
        answer = json.loads(self._answers.readline())
        if "error" in answer:
            raise ExpressionError(f"{expression.strip()}: {answer['error']}")
        return answer["value"], answer["text"]

    def fill(self, value: Value, scope: Scope) -> Value:
        """Evaluate the expressions in a value; a string that is one expression keeps the type of its result."""
        if isinstance(value, dict):
            return {self.fill(name, scope): self.fill(item, scope) for name, item in value.items()}
        if isinstance(value, list):
            return [self.fill(item, scope) for item in value]
        if not isinstance(value, str):
            return value
        pieces = list(split(value))
        if len(pieces) == 1 and pieces[0][0]:
            return self.evaluate(pieces[0][1], scope)[0]
        return "".join(self.evaluate(text, scope)[1] if inside else text for inside, text in pieces)

    def text(self, value: Value, scope: Scope) -> str:
        """Evaluate a value to text, as GitHub does for environments and action inputs."""
        return as_text(self.fill(value, scope))

    def condition(self, value: Value, scope: Scope) -> bool:
        """Evaluate an ``if``; without a status function, success() must hold too."""
        text = "" if value is None else as_text(value)
        pieces = list(split(text))
        if any(inside for inside, _ in pieces):
            if len(pieces) > 1:
                raise ExpressionError(f"if: {text}: text around an expression is always true")
            text = pieces[0][1]
        if not _STATUS.search(_STRING.sub("''", text)):
            text = f"success() && ({text})" if text.strip() else "success()"
        return truth(self.evaluate(text, scope)[0])


def truth(value: Value) -> bool:
    """Whether a value is truthy for GitHub."""
    return value not in (None, False, 0, "") if not isinstance(value, list | dict) else True


def as_text(value: Value) -> str:
    """Format a value as GitHub writes it into an environment."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value) if not isinstance(value, list | dict) else json.dumps(value)


def split(text: str) -> Iterator[tuple[bool, str]]:
    """Split a text at ``${{ }}``; True marks expressions. Raises `ExpressionError` for an unclosed one."""
    at = 0
    while (start := text.find("${{", at)) >= 0:
        if start > at:
            yield False, text[at:start]
        end = _end(text, start + 3)
        yield True, text[start + 3 : end]
        at = end + 2
    if at < len(text) or not text:
        yield False, text[at:]


def _end(text: str, at: int) -> int:
    """Return the end of an expression; ``}}`` inside a string does not end it."""
    quoted = False
    while at < len(text):
        if text[at] == "'":
            quoted = not quoted
        elif not quoted and text.startswith("}}", at):
            return at
        at += 1
    raise ExpressionError(f"{text}: an expression is not closed")


@contextmanager
def expressions() -> Iterator[Expressions]:
    """Start the evaluator, and end it."""
    with subprocess.Popen(_command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        yield Expressions(process.stdin, process.stdout)
        process.stdin.close()
        process.wait()


@cache
def _command() -> tuple[str, ...]:
    return node(), str(_PROGRAM), str(npm_package("@actions/expressions"))
