"""The version of the factory, as reports and ``--version`` say it."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def factory_version() -> str:
    """Of the installed distribution; ``not installed`` for a checkout that is run as it is, as create_matrix.py is."""
    try:
        return version("wheelfactory")
    except PackageNotFoundError:
        return "not installed"
