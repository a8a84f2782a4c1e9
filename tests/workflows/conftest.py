"""Fixtures: a repository whose workflows a test writes, and the evaluator of expressions."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from workflows.definition import FOLDER
from workflows.events import Event, push
from workflows.expressions import Expressions, expressions
from workflows.factory_repository import TRITON, make_runner, stock
from workflows.results import Run
from workflows.runner import RunnerSetup, run_workflow

RunText: TypeAlias = Callable[..., Run]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """An empty git working tree."""
    folder = tmp_path / "tree"
    (folder / FOLDER).mkdir(parents=True)
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    return folder


@pytest.fixture(scope="session")
def evaluator() -> Iterator[Expressions]:
    """One evaluator for all tests, because starting it takes longer than most of them."""
    with expressions() as one:
        yield one


@pytest.fixture(scope="session")
def stocked(proved: Path, few_archs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with every download that the two Triton cells need, to which no other test adds anything."""
    own = make_runner(tmp_path_factory.mktemp("stocked") / "cache", proved, {})
    stock(own, tmp_path_factory.mktemp("stock"), few_archs, TRITON)
    return own


@pytest.fixture
def run_text(tree: Path, tmp_path: Path, evaluator: Expressions) -> RunText:
    """Run a workflow from its text, or from only the text below ``jobs``, with optional other files."""
    numbers = itertools.count()

    def run(
        text: str,
        files: Mapping[str, str] | None = None,
        event: Event | None = None,
        settings: Any = None,
        **options: Any,
    ) -> Run:
        whole = text if text.startswith("on:") else f"on: push\npermissions: {{}}\njobs:\n{text}"
        for name, content in {f"{FOLDER}/main.yml": whole, **(files or {})}.items():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_text(content)
        place = RunnerSetup(tree, tmp_path / f"place{next(numbers)}", evaluator)
        return run_workflow(replace(place, **(settings or {})), "main.yml", event or push(), **options)

    return run
