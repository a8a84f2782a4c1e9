"""The install commands of pip and uv: the one place that writes them, for the doctor, the notes and the search page.

Needs nothing but the standard library of Python 3.9: the doctor takes it along.
"""

from __future__ import annotations

from dataclasses import dataclass

InstallCommand = tuple[str, ...]


@dataclass(frozen=True)
class Installer:
    """pip or uv, with its spelling of what both can."""

    install_command: InstallCommand
    uninstall_command: InstallCommand
    index_option: str
    """The option before the one index that everything is taken from."""
    reinstall_option: str
    """The option that replaces an installed release by itself."""

    def install_from_index(self, index: str, requirement: str) -> InstallCommand:
        """Install from one index and from nowhere else, so that nothing can replace the torch that is installed."""
        return (*self.install_command, self.index_option, index, requirement)

    def install_torch(self, requirement: str, index: str, *, again: bool = False) -> InstallCommand:
        """Install a torch, with what it requires, from PyTorch's index. `again`: in place of one that is there."""
        return (
            *self.install_command,
            *((self.reinstall_option,) if again else ()),
            requirement,
            self.index_option,
            index,
        )

    def install_without_dependencies(self, *wheels: str, again: bool = False) -> InstallCommand:
        """Install these and nothing that they require: torch stays. `again`: one of them is installed already."""
        return (*self.install_command, "--no-deps", *((self.reinstall_option,) if again else ()), *wheels)


def pip_for(python: str = "") -> Installer:
    """The pip of a Python; by default the pip of the shell that a line is pasted into."""
    program = (python, "-m", "pip") if python else ("pip",)
    return Installer((*program, "install"), (*program, "uninstall", "--yes"), "--index-url", "--force-reinstall")


def uv_for(python: str = "") -> Installer:
    """uv for a Python; by default for the environment that uv finds."""
    where = ("--python", python) if python else ()
    return Installer(
        ("uv", "pip", "install", *where), ("uv", "pip", "uninstall", *where), "--default-index", "--reinstall"
    )


def url_with_sha256(url: str, sha256: str) -> str:
    """The address of a wheel that pip and uv check by its digest."""
    return f"{url}#sha256={sha256}"
