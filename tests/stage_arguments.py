"""The context of stages in tests."""

from __future__ import annotations

from wheelfactory.build.executor import LocalExecutor
from wheelfactory.matrix.facts import Context


def local_executor(context: Context) -> LocalExecutor:
    """Return an executor that builds on the host."""
    return LocalExecutor(context)
