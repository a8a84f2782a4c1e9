"""The common keyword arguments of stages: matrix, host, environment variables, cache."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypedDict

from wheelfactory.build.executor import LocalExecutor
from wheelfactory.core.host import Host
from wheelfactory.matrix.facts import Matrix


class StageArguments(TypedDict):
    """Keyword arguments of functions that take all four."""

    matrix: Matrix
    host: Host
    environ: Mapping[str, str]
    cache: Path


class BuildArguments(TypedDict):
    """Keyword arguments of functions that get the host from an executor."""

    matrix: Matrix
    environ: Mapping[str, str]
    cache: Path


def build_arguments(given: StageArguments) -> BuildArguments:
    """Return the arguments without the host."""
    return {"matrix": given["matrix"], "environ": given["environ"], "cache": given["cache"]}


def local_executor(given: StageArguments) -> LocalExecutor:
    """Return an executor that builds on the host."""
    return LocalExecutor(given["matrix"], given["host"], given["environ"], given["cache"])
