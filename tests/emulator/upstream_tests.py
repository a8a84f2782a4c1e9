# mypy: ignore-errors
"""Run tests that flash-attn itself has for its Triton backend on the emulator, and print what came out as JSON.

    python -B upstream_tests.py SRC FILE ARCH COUNT SEED

FILE is tests/test_flash_attn_triton_amd.py of flash-attn 2.8.3, which needs einops. COUNT tests are drawn, each with
one value of every parameter. The references and tolerances are upstream's. Sequences are shortened to at most 80 rows,
batches to 2 sequences, and nine heads to three. Each test takes seconds, most of them to compile.
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

sys.path += [sys.argv[1], str(Path(sys.argv[1], "wheelfactory/verify/programs"))]

import torch
from check_numbers import accept_cpu_tensors
from triton.runtime import driver

from wheelfactory.emulator.findings import NotRunError
from wheelfactory.emulator.triton_driver import EmulatorDriver

LONGEST = 80
"""Rows of the longer sequence of a test."""

SMALLER = {"batch_size = 4": "batch_size = 2", "batch_size = 8": "batch_size = 2", "nheads = 9": "nheads = 3"}
"""Changes of upstream's text; its tests with six heads keep them, because they group them by two and three."""


class SkippedError(Exception):
    """Upstream skips this combination."""


@dataclass
class UpstreamTest:
    """A test function and the values of its parameters, by the names that share them."""

    function: Callable[..., None]
    parameters: dict[str, list[Any]] = field(default_factory=dict)
    skipped: bool = False


TESTS: dict[str, UpstreamTest] = {}


def parametrize(names: str, values: list[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Keep the values of a parameter, as the decorator of pytest does."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        TESTS.setdefault(function.__name__, UpstreamTest(function)).parameters[names] = list(values)
        return function

    return decorate


def mark_skipped(*_reason: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Leave out a test that upstream always skips."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        TESTS.setdefault(function.__name__, UpstreamTest(function)).skipped = True
        return function

    return decorate


def skip(*_reason: str) -> None:
    """End a test."""
    raise SkippedError


def load_tests(file: Path) -> None:
    """Execute upstream's module with CPU tensors; it fills `TESTS`."""
    text = file.read_text(encoding="utf-8").replace('"cuda"', '"cpu"')
    for old, new in SMALLER.items():
        assert old in text, old
        text = text.replace(old, new)
    mark = SimpleNamespace(parametrize=parametrize, skip=mark_skipped)
    sys.modules["pytest"] = SimpleNamespace(mark=mark, skip=skip)
    module = ModuleType("upstream")
    module.print = lambda *_: None
    exec(compile(text, file, "exec"), module.__dict__)  # noqa: S102  # upstream's own tests


def shorten(draw: random.Random, *lengths: int) -> list[int]:
    """Return lengths of at most `LONGEST` that are equal or ordered as the given ones."""
    longest = max(lengths)
    if longest <= LONGEST:
        return list(lengths)
    target = draw.randint(LONGEST - 15, LONGEST)
    return [max(1, length * target // longest) if length > 8 else length for length in lengths]


def draw_tests(draw: random.Random) -> Iterator[tuple[UpstreamTest, dict[str, Any]]]:
    """Yield tests with a value of every parameter, without end."""
    tests = [test for test in TESTS.values() if not test.skipped]
    while True:
        test = draw.choice(tests)
        chosen: dict[str, Any] = {}
        for names, values in test.parameters.items():
            value = draw.choice(values)
            chosen |= dict(zip(names.split(","), value if "," in names else [value], strict=True))
        lengths = [name for name in ("seqlen", "seqlen_q", "seqlen_k") if name in chosen]
        chosen |= zip(lengths, shorten(draw, *(chosen[name] for name in lengths)), strict=True)
        yield test, chosen


def run(test: UpstreamTest, chosen: dict[str, Any], emulator: EmulatorDriver) -> str | None:
    """Return how a test ended; None if upstream skips it."""
    emulator.launches.clear()
    try:
        test.function(**chosen)
    except SkippedError:
        return None
    except NotRunError as error:
        return str(error)
    except NotImplementedError as error:
        return f"refused: {error}"
    except AssertionError:
        return "wrong"
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    findings = [finding for launch in emulator.launches for finding in launch.execution.findings]
    return f"finding: {findings[0]}" if findings else "right"


def main(file: Path, arch: str, count: int, seed: int) -> None:
    """Draw and run tests, and print how they ended."""
    torch.use_deterministic_algorithms(mode=True, warn_only=True)  # fills memory that torch.empty returns with NaN
    emulator = EmulatorDriver(arch)
    driver.set_active(emulator)
    accept_cpu_tensors()
    torch.cuda.get_device_capability = lambda _: (int(arch[3:-2]), int(arch[-2]))
    load_tests(file)
    ends: list[tuple[str, str]] = []
    drawn = draw_tests(random.Random(seed))  # noqa: S311  # a sample, no secret
    while len(ends) < count:
        test, chosen = next(drawn)
        name = f"{test.function.__name__}({', '.join(f'{key}={value}' for key, value in chosen.items())})"
        sys.stderr.write(f"at: {name}\n")
        if end := run(test, chosen, emulator):
            sys.stderr.write(f"{end}\n")
            ends.append((name, end))
    counts = Counter(end for _, end in ends)
    bad = [f"{name}: {end}" for name, end in ends if end != "right" and not end.startswith("refused")]
    sys.stdout.write(f"\n{json.dumps({'arch': arch, 'counts': counts, 'bad': bad})}\n")


if __name__ == "__main__":
    main(Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
