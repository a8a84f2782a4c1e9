"""What a stage that touches the machine is given in tests: the facts, the machine, its variables, a cache."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypedDict

from wheelfactory.build.executor import LocalExecutor
from wheelfactory.core.host import Host
from wheelfactory.matrix.facts import Matrix


class StageArguments(TypedDict):
    """Keyword arguments of the functions that take all of it."""

    matrix: Matrix
    host: Host
    environ: Mapping[str, str]
    cache: Path


class BuildArguments(TypedDict):
    """Keyword arguments of the functions that ask an executor about the machine."""

    matrix: Matrix
    environ: Mapping[str, str]
    cache: Path


def build_arguments(given: StageArguments) -> BuildArguments:
    """What those are given of it."""
    return {"matrix": given["matrix"], "environ": given["environ"], "cache": given["cache"]}


def local_executor(given: StageArguments) -> LocalExecutor:
    """That machine as the place of builds."""
    return LocalExecutor(given["matrix"], given["host"], given["environ"], given["cache"])
