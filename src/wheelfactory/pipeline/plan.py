"""The plan of one workflow run, as a value and as the file that its jobs hand on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from wheelfactory.core.errors import InputError
from wheelfactory.core.files import read_file, write_atomic
from wheelfactory.core.models import FrozenModel, parse


class PlannedCell(FrozenModel):
    """A cell to build, and the group of cells with which its wheel is uploaded."""

    id: str
    group: str
    kernel_set: str = ""
    """The kernel set that it links; empty for Triton."""


class PlannedSet(FrozenModel):
    """A kernel set that cells of the plan link."""

    id: str
    kept_name: str
    """Its name on the shelf of the target."""
    shards: tuple[str, ...] = ()
    """``1/4`` to ``4/4``, to compile in this run; none where the set is kept already, or is left to the next run."""
    kept: bool = False


class Plan(FrozenModel):
    """What a run is to do."""

    cells: tuple[PlannedCell, ...]
    kernel_sets: tuple[PlannedSet, ...]

    def write(self, path: Path) -> None:
        """Write it for the later jobs."""
        write_atomic(path, (self.model_dump_json(indent=1) + "\n").encode())

    @classmethod
    def read(cls, path: Path) -> Plan:
        """The inverse of `write`. Raises `InputError` for any other file."""
        data = read_file(path, InputError("cannot read the plan", str(path), _HINT))
        return parse(cls, data, InputError("not a plan", str(path), _HINT))


_HINT = "`wheelfactory ci jobs` writes it"


def outputs(values: Mapping[str, object]) -> list[str]:
    """``name=value`` lines, as a step appends them to ``$GITHUB_OUTPUT``; true and false as expressions spell them."""
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in values.items()}
    assert not any("\n" in text for text in texts.values())
    return [f"{name}={text}" for name, text in texts.items()]
