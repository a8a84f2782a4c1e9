"""The install commands of pip and uv that the doctor, the release notes and the search page show.

Part of doctor.py, so it uses only the standard library of Python 3.9.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

InstallCommand = tuple[str, ...]


@dataclass(frozen=True)
class Installer:
    """pip or uv: its commands and its names for the options that both have."""

    install_command: InstallCommand
    uninstall_command: InstallCommand
    index_option: str
    """The option that replaces the default index."""
    reinstall_option: str
    """The option that reinstalls an installed version."""

    def install_from_index(self, index: str, *requirements: str, options: Sequence[str] = ()) -> InstallCommand:
        """Install from one index only."""
        # with a second index, its torch could replace the installed one
        return (*self.install_command, *options, self.index_option, index, *requirements)

    def install_torch(self, *words: str, index: str) -> InstallCommand:
        """Install torch and its dependencies from an index that has all of them; `words` may begin with options."""
        return (*self.install_command, *words, self.index_option, index)

    def install_without_dependencies(self, *wheels: str, again: bool = False) -> InstallCommand:
        """Install only these wheels; with `again`, replace installed ones."""
        # the requirements of a wheel could replace the installed torch
        return (*self.install_command, "--no-deps", *((self.reinstall_option,) if again else ()), *wheels)


def pip_for(python: str = "") -> Installer:
    """The pip of a Python; by default the first pip on PATH."""
    program = (python, "-m", "pip") if python else ("pip",)
    return Installer((*program, "install"), (*program, "uninstall", "--yes"), "--index-url", "--force-reinstall")


def uv_for(python: str = "") -> Installer:
    """uv for a Python; by default for the active environment."""
    where = ("--python", python) if python else ()
    return Installer(
        ("uv", "pip", "install", *where), ("uv", "pip", "uninstall", *where), "--default-index", "--reinstall"
    )


def url_with_sha256(url: str, sha256: str) -> str:
    """Add a digest to a wheel's URL, which pip and uv then verify."""
    return f"{url}#sha256={sha256}"
