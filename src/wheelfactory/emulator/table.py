"""The table of what instructions compute: `TABLE` is filled by the modules ``scalar``, ``vector`` and ``packed``.

A signature names the kinds of the inputs and results, such as ``f32 f32 > f32``. In the text of an instruction the
results come first. These kinds are not in the text: ``scc``, ``exec`` (an integer), ``lanes`` (EXEC as booleans),
``vcc`` (booleans), and ``old``, the value that the result has before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

IMPLICIT = ("scc", "exec", "lanes", "vcc", "old")


@dataclass(frozen=True)
class Semantics:
    """What an instruction computes: a function of its inputs that returns its result, or a tuple of results."""

    inputs: tuple[str, ...]
    results: tuple[str, ...]
    compute: Callable[..., Any]


TABLE: dict[str, Semantics] = {}
"""Instructions by their name on gfx9."""


def define(signature: str, **functions: Callable[..., Any]) -> None:
    """Add instructions to the table, by name."""
    inputs, _, results = signature.partition(">")
    for name, compute in functions.items():
        TABLE[name] = Semantics(tuple(inputs.split()), tuple(results.split()), compute)
