"""The plan of one workflow run, as a value and as the file that its jobs hand on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from wheelfactory.core.errors import InputError
from wheelfactory.core.files import write_atomic


class PlannedCell(BaseModel):
    """A cell to build, and the group of cells with which its wheel is uploaded."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    group: str
    kernel_set: str = ""
    """The kernel set that it links; empty for Triton."""


class PlannedSet(BaseModel):
    """A kernel set that cells of the plan link."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    kept_name: str
    """Its name on the shelf of the target."""
    shards: tuple[str, ...] = ()
    """``1/4`` to ``4/4``, to compile in this run; none where the set is kept already, or is left to the next run."""
    kept: bool = False


class Plan(BaseModel):
    """What a run is to do."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cells: tuple[PlannedCell, ...]
    kernel_sets: tuple[PlannedSet, ...]

    def write(self, path: Path) -> None:
        """Write it for the later jobs."""
        write_atomic(path, (self.model_dump_json(indent=1) + "\n").encode())

    @classmethod
    def read(cls, path: Path) -> Plan:
        """The inverse of `write`. Raises `InputError` for any other file."""
        try:
            return cls.model_validate_json(path.read_bytes())
        except OSError as error:
            raise InputError("cannot read the plan", f"{path} ({error.strerror})", _HINT) from None
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"])) or "file"
            raise InputError("not a plan", f"{path}: {place}: {first['msg']}", _HINT) from None


_HINT = "`wheelfactory ci jobs` writes it"


def outputs(values: Mapping[str, object]) -> list[str]:
    """``name=value`` lines, as a step appends them to ``$GITHUB_OUTPUT``; true and false as expressions spell them."""
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in values.items()}
    assert not any("\n" in text for text in texts.values())
    return [f"{name}={text}" for name, text in texts.items()]
