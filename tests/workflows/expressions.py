"""Expressions of GitHub Actions, by GitHub's own evaluator in one node process that lives as long as it is needed."""

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
"""What YAML, JSON and expressions hold: None, bool, a number, str, list or dict."""

_PROGRAM = Path(__file__).with_name("evaluator.mjs")
_STATUS = re.compile(r"\b(success|failure|always|cancelled)\s*\(", re.IGNORECASE)
_STRING = re.compile(r"'(?:[^']|'')*'")
STATUSES = ("success", "failure", "always", "cancelled")


class ExpressionError(Exception):
    """An expression that GitHub's evaluator refuses."""


@dataclass(frozen=True)
class Scope:
    """What an expression can see at its place: GitHub gives each key of a workflow its own set of contexts."""

    contexts: Mapping[str, Value]
    statuses: Mapping[str, bool] | None = None
    """Values of success(), failure(), always() and cancelled(), where these may be called."""
    folder: Path | None = None
    """Where hashFiles() looks, where that may be called."""


class Expressions:
    """The evaluator, while `expressions` holds it."""

    def __init__(self, ask: IO[str], hear: IO[str]) -> None:
        self._ask, self._hear = ask, hear

    def evaluate(self, expression: str, scope: Scope) -> tuple[Value, str]:
        """The value of an expression (without ``${{ }}``), and the same as text. Raises `ExpressionError`."""
        request = {"expression": expression, "contexts": scope.contexts, "statuses": scope.statuses or {}}
        print(json.dumps({**request, "folder": scope.folder and str(scope.folder)}), file=self._ask, flush=True)
        answer = json.loads(self._hear.readline())
        if "error" in answer:
            raise ExpressionError(f"{expression.strip()}: {answer['error']}")
        return answer["value"], answer["text"]

    def fill(self, value: Value, scope: Scope) -> Value:
        """A value of the workflow with its expressions evaluated; one that is only an expression keeps its type."""
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
        """`fill` as text, the way that environments and the inputs of actions are given."""
        return as_text(self.fill(value, scope))

    def condition(self, value: Value, scope: Scope) -> bool:
        """An ``if``: without a function that asks for the status, success() is asked as well."""
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
    """Whether GitHub takes a value as true."""
    return value not in (None, False, 0, "") if not isinstance(value, list | dict) else True


def as_text(value: Value) -> str:
    """A value as GitHub writes it into an environment."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value) if not isinstance(value, list | dict) else json.dumps(value)


def split(text: str) -> Iterator[tuple[bool, str]]:
    """The pieces of a text, each with whether it stood in ``${{ }}``. Raises `ExpressionError` if one is not closed."""
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
    """Where the expression ends; ``}}`` may stand in a string of it."""
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
        process.wait(timeout=10)


@cache
def _command() -> tuple[str, ...]:
    return node(), str(_PROGRAM), str(npm_package("@actions/expressions"))
