"""The install commands of pip and uv: the one place that writes them, for the doctor, the notes and the search page.

Needs nothing but the standard library of Python 3.9: the doctor takes it along.
"""

from __future__ import annotations

from dataclasses import dataclass

Command = tuple[str, ...]


@dataclass(frozen=True)
class Installer:
    """pip or uv, with its spelling of what both can."""

    install: Command
    uninstall: Command
    only_index: str
    """The option before the one index that everything is taken from."""
    reinstall: str
    """The option that replaces an installed release by itself."""

    def from_index(self, index: str, requirement: str) -> Command:
        """Install from one index and from nowhere else, so that nothing can replace the torch that is installed."""
        return (*self.install, self.only_index, index, requirement)

    def torch(self, requirement: str, index: str, *, again: bool = False) -> Command:
        """Install a torch, with what it requires, from PyTorch's index. `again`: in place of one that is there."""
        return (*self.install, *((self.reinstall,) if again else ()), requirement, self.only_index, index)

    def exactly(self, *wheels: str, again: bool = False) -> Command:
        """Install these and nothing that they require: torch stays. `again`: one of them is installed already."""
        return (*self.install, "--no-deps", *((self.reinstall,) if again else ()), *wheels)


def pip_of(python: str = "") -> Installer:
    """The pip of a Python; by default the pip of the shell that a line is pasted into."""
    program = (python, "-m", "pip") if python else ("pip",)
    return Installer((*program, "install"), (*program, "uninstall", "--yes"), "--index-url", "--force-reinstall")


def uv_of(python: str = "") -> Installer:
    """uv for a Python; by default for the environment that uv finds."""
    where = ("--python", python) if python else ()
    return Installer(
        ("uv", "pip", "install", *where), ("uv", "pip", "uninstall", *where), "--default-index", "--reinstall"
    )


def with_digest(url: str, sha256: str) -> str:
    """The address of a wheel that pip and uv check by its digest."""
    return f"{url}#sha256={sha256}"
