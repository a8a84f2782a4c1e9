"""A manifest row -> what people see of it: its place in a list, its versions, its Python."""

from __future__ import annotations

from collections.abc import Iterable

from packaging.utils import parse_wheel_filename
from packaging.version import Version

from wheelfactory.core.label import Label
from wheelfactory.release.manifest import WheelRow
from wheelfactory.site.markdown import prose


def newest_first(wheel: WheelRow) -> tuple[object, ...]:
    """Sorts ROCm, torch and flash-attn from new to old, CK before Triton, Pythons as names; dependencies last."""
    if wheel.label is None:
        return 1, wheel.filename
    label = Label.parse(wheel.label)
    version = Version(wheel.version)
    older = tuple(-part for part in (*label.rocm, *label.torch))
    return 0, older, str(label.backend), [-part for part in version.release], -(version.post or 0), wheel.filename


def axes(wheel: WheelRow) -> tuple[str, str, str]:
    """ROCm, torch and backend of a wheel that has a label: ``("6.4", "2.9", "ck")``."""
    label = Label.parse(str(wheel.label))
    return label.rocm_version, label.torch_version, str(label.backend)


def flash_attn_version(wheel: WheelRow) -> str:
    """The version without the label."""
    return wheel.version.partition("+")[0]


def versions(wheels: Iterable[WheelRow]) -> str:
    """The versions without their label, in the order of the wheels, as Markdown."""
    return ", ".join(dict.fromkeys(prose(flash_attn_version(wheel)) for wheel in wheels))


def pythons(wheels: Iterable[WheelRow]) -> str:
    """``3.10, 3.11``, or ``any`` for wheels without compiled code, from the tags of the files' names."""
    tags = {tag.interpreter for wheel in wheels for tag in parse_wheel_filename(wheel.filename)[3]}
    return ", ".join("any" if tag == "py3" else f"{tag[2:3]}.{tag[3:]}" for tag in sorted(tags, key=_by_number))


def _by_number(tag: str) -> tuple[int, str]:
    return len(tag), tag
