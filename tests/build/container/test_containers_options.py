"""Where the options say that setup.py runs, and when a container engine is asked at all."""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from pathlib import Path

import pytest

from container_project import BASE, CELL
from small_matrix import small_matrix
from stage_arguments import local_executor
from wheelfactory.build.container_executor import ContainerExecutor
from wheelfactory.build.engine import Engine
from wheelfactory.commands.executor_options import add_executor, has_compiled_cell, open_executor
from wheelfactory.core.cell import Backend, Cell
from wheelfactory.core.errors import BuildError
from wheelfactory.core.host import Host
from wheelfactory.matrix.facts import Context
from wheelfactory.matrix.load import load_matrix

CK = Cell.from_axes("2.8.3", "3.11", "2.9.1", "6.4", Backend.CK)
TRITON = Cell.from_axes("2.8.3", "3.11", "2.9.1", "6.4", Backend.TRITON)

FAR = "tcp://10.0.0.7:2375"
"""An engine that is refused as soon as it is to be asked."""


@pytest.fixture
def given(tmp_path: Path) -> Context:
    return Context(small_matrix(), Host(cores=4, memory_gib=32), {"DOCKER_HOST": FAR}, tmp_path / "cache")


def options(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_executor(parser)
    return parser.parse_args(arguments)


@pytest.mark.parametrize(("cell", "where"), [(CK, "local"), (TRITON, "local"), (TRITON, "auto")])
def test_local_never_asks_an_engine_and_auto_only_for_compiled_code(
    given: Context, cell: Cell, where: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_executor(options("--executor", where), compiled=has_compiled_cell([cell]), context=given) as executor:
        assert executor == local_executor(given)
    assert capsys.readouterr() == ("", "")


def test_auto_builds_compiled_code_here_where_no_engine_answers_and_says_why(
    given: Context, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_executor(options(), compiled=has_compiled_cell([TRITON, CK]), context=given) as executor:
        assert executor == local_executor(given)
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("not using containers: the container engine must be on this machine: ")
    assert FAR in output.err


@pytest.mark.parametrize("cell", [CK, TRITON], ids=["ck", "triton"])
def test_docker_without_an_engine_is_an_error(given: Context, cell: Cell) -> None:
    with (
        pytest.raises(BuildError, match="must be on this machine"),
        open_executor(options("--executor", "docker"), compiled=has_compiled_cell([cell]), context=given),
    ):
        pass


@pytest.fixture
def served(given: Context, engine: Engine) -> Context:
    """The same with an engine."""
    return replace(given, environ={"DOCKER_HOST": engine.url})


@pytest.mark.slow
def test_auto_builds_compiled_code_in_containers_and_the_rest_here(served: Context) -> None:
    with open_executor(options(), compiled=has_compiled_cell([TRITON, CK]), context=served) as executor:
        assert isinstance(executor, ContainerExecutor)
        assert executor.describe_host(CK).rocm == CK.rocm
        assert executor.describe_host(TRITON) == served.host
        assert executor.find_gate_host(TRITON) is None


@pytest.mark.slow
@pytest.mark.parametrize(("more", "memory"), [((), 32), (("--memory", "12", "--slim"), 12)])
def test_docker_builds_everything_in_containers_that_share_what_they_may_and_leaves_no_folder(
    served: Context, more: tuple[str, ...], memory: int
) -> None:
    compiled = has_compiled_cell([TRITON])
    with open_executor(options("--executor", "docker", *more), compiled=compiled, context=served) as executor:
        assert isinstance(executor, ContainerExecutor)
        assert (executor.share.cores, executor.share.memory_gib) == (4, memory)
        assert executor.slim == ("--slim" in more)
        assert list(served.cache.iterdir())
    assert list(served.cache.iterdir()) == []


@pytest.mark.slow
def test_the_build_host_of_a_cell_is_its_image(
    engine: Engine, cell_image: str, matrix_file: Path, tmp_path: Path
) -> None:
    given = Context(load_matrix(matrix_file), Host(4, 32), {**os.environ, "DOCKER_HOST": engine.url}, tmp_path)
    with open_executor(options("--executor", "docker"), compiled=has_compiled_cell([CELL]), context=given) as executor:
        place = executor.prepare_host(CELL, lambda *_: None)
        other = replace(CELL, torch="2.12.1")  # whose image is not here
        assert executor.choose_cheapest([other, CELL]) == CELL
    assert place.python == Path(BASE["python-path"])
    assert place.environ["PATH"].startswith("/opt/venv/bin:/opt/rocm/bin:")
    assert not set(place.environ.values()) & set(os.environ.values()) - {"/tmp"}  # noqa: S108 - in the container
    inside = engine.client.images.get(cell_image).attrs["Config"]
    assert inside["Labels"]["wheelfactory.torch"] == CELL.torch
