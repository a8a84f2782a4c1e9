"""The table of what instructions compute: `TABLE` is filled by the modules ``scalar`` and ``vector``.

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


def define_sizes(signature: str, name: str, *sizes: int, **functions: Callable[..., Any]) -> None:
    """Add instructions that compute the same for numbers of several sizes.

    ``#`` stands for the bits of a number, in the signature and in the name; ``*`` in that for the name of a function:
    with ``v_*_f#`` and 16, `add` is ``v_add_f16``.
    """
    for size in map(str, sizes):
        named = {name.replace("*", function).replace("#", size): compute for function, compute in functions.items()}
        define(signature.replace("#", size), **named)
