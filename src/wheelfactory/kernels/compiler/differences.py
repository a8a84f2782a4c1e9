"""What differs between the keys of two kernel sets, in words."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

_LONGEST_VALUE = 48
"""Characters of a value that is shown in an error; a digest is told apart by far fewer."""


def differences(parts: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """What differs between the parts of two keys, by name, such as ``compiler: HIP 6.3, other HIP 6.4``."""
    found: list[str] = []
    for name in sorted({*parts, *other}):
        one, two = parts.get(name), other.get(name)
        if isinstance(one, Mapping) and isinstance(two, Mapping):
            inner = sorted({*one, *two})
            found += _difference([(f"{name}.{part}", one.get(part), two.get(part)) for part in inner])
        else:
            found += _difference([(name, one, two)])
    return found


def _difference(values: Iterable[tuple[str, Any, Any]]) -> list[str]:
    return [
        f"{name}: {_short(*_apart(one, two))}, other {_short(*_apart(two, one))}"
        for name, one, two in values
        if _plain(one) != _plain(two)
    ]


def _plain(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _apart(value: Any, other: Any) -> tuple[Any, str]:
    """What of a list the other has not, and how to say that it is a part of it."""
    if not isinstance(value, (list, tuple)) or not isinstance(other, (list, tuple)):
        return value, ""
    mine, theirs = {_plain(item) for item in value}, {_plain(item) for item in other}
    if mine == theirs or not mine & theirs:
        return value, ""
    return [item for item in value if _plain(item) not in theirs], "with "


def _short(value: Any, before: str) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, (list, tuple)):
        if not value:
            return "without" if before else "nothing"
        value = " ".join(map(str, value))
    text = value if isinstance(value, str) else _plain(value)
    text = text.encode("unicode_escape").decode()
    if re.fullmatch("[0-9a-f]{40,}", text):
        return f"{before}{text[:12]}..."
    return before + (text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 3]}...")
