"""Which options of flash-attn a wheel refuses; options.yaml has the facts."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import yaml

from wheelfactory.core.cell import Backend, Cell
from wheelfactory.core.models import FrozenModel


class Options(FrozenModel):
    """The options of all wheels."""

    wheels: Mapping[str, str]
    """A pattern of releases with backends, ``fa2.8.3-triton``, for each kind of wheel; the first match counts."""
    refused: Mapping[str, tuple[str, ...]]
    """The kinds of wheels that refuse an option, for each option."""


@cache
def read_options() -> Options:
    """Read options.yaml."""
    text = Path(__file__).with_name("options.yaml").read_text(encoding="utf-8")
    return Options.model_validate(yaml.safe_load(text), strict=False)


def refused_options(cell: Cell) -> tuple[str, ...]:
    """Return the options for which the wheel of a cell raises an error."""
    return options_refused_by(cell.flash_attn, cell.backend)


def options_refused_by(flash_attn: str, backend: Backend) -> tuple[str, ...]:
    """Return the options for which the wheels of a release and a backend raise an error."""
    options, name = read_options(), f"fa{flash_attn}-{backend}"
    kind = next((kind for kind, pattern in options.wheels.items() if fnmatch(name, pattern)), None)
    return tuple(option for option, kinds in options.refused.items() if kind in kinds)
