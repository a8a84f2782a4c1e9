"""The build.ninja that torch wrote -> its compiles."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from wheelfactory.core.errors import BuildError
from wheelfactory.kernels.compiler.flags import kernel_name, kernel_source


@dataclass(frozen=True)
class Edge:
    """One compile: the command line as ninja would give it to a shell, its source, its object."""

    command: str
    source: str
    output: str

    @property
    def name(self) -> str:
        """The name of its source, without extension."""
        return kernel_name(self.source)

    @property
    def is_kernel(self) -> bool:
        """Whether its source is a generated kernel."""
        return kernel_source(["-c", self.source]) is not None

    def arguments(self, launcher: str) -> list[str]:
        """hipcc and its arguments. Raises `BuildError` if hipcc is not behind the launcher."""
        words = shlex.split(self.command)
        if launcher in words:
            return words[words.index(launcher) + 1 :]
        raise BuildError("the compiler is not started by the launcher", words[0], "unset what replaces PYTORCH_NVCC")

    @property
    def pattern(self) -> str:
        """The command without what differs from source to source."""
        return self.command.replace(self.output, "OUTPUT").replace(self.source, "SOURCE")


def read_edges(ninja: str, folder: Path) -> list[Edge]:
    """The compiles of the build.ninja in a folder, as ninja itself understands it."""
    said = subprocess.run([ninja, "-t", "compdb"], cwd=folder, stdout=subprocess.PIPE, check=True).stdout
    return [
        Edge(entry["command"], str(folder / entry["file"]), str(folder / entry["output"])) for entry in json.loads(said)
    ]


def arguments_of(kernels: Sequence[Edge], launcher: str) -> list[str]:
    """hipcc and its arguments, the same for all of these but for source and output.

    Raises `BuildError` if they differ, or if hipcc is not behind the launcher.
    """
    first = kernels[0]
    other = next((edge for edge in kernels if edge.pattern != first.pattern), None)
    if other:
        raise BuildError(
            "kernels of one set are compiled with different flags",
            f"{first.name} and {other.name}",
            "this flash-attn release needs a change in wheelfactory.kernels.compiler.edges",
        )
    return first.arguments(launcher)
