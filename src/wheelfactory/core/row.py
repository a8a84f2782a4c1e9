"""A manifest's bytes -> its rows, for both of its readers: `release.manifest` and `doctor.wheels`.

What a row says ends in commands, in paths, on pages and on terminals, so each field is compared with the form that the
factory writes, and everything else is refused. Needs nothing but the standard library of Python 3.9: the doctor takes
it along.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from wheelfactory.core.cell import Cell
from wheelfactory.core.digest import SHA256
from wheelfactory.core.errors import InputError
from wheelfactory.core.label import Label

ROW_FORMAT = 2
"""The format that is written, the first key of each row. Rows without one are of format 1, which had no such key."""

LONGEST_NAME = 246
"""Characters of a file name, and of what is part of one: file systems take 255, and ``.metadata`` is added."""
LONGEST_TEXT = 10_000
"""Characters of any text in a row; a whole row of this factory has up to as many bytes."""
LARGEST_FILE = (1 << 63) - 1
"""Bytes; the offsets of a file are signed 64-bit numbers."""

_NUMBER = "(?:0|[1-9][0-9]*)"
_RELEASE = rf"{_NUMBER}(?:\.{_NUMBER})*(?:(?:a|b|rc){_NUMBER})?(?:\.post{_NUMBER})?(?:\.dev{_NUMBER})?"
_LOCAL_PART = f"(?:{_NUMBER}|[0-9]*[a-z][a-z0-9]*)"
_TAG = r"[A-Za-z0-9_]+(?:\.[A-Za-z0-9_]+)*"
_PYTHON = "[0-9]{1,4}"
_PYTHONS = (
    rf"(?:(?:==|!=) *{_PYTHON}(?:\.{_PYTHON})*(?:\.\*)?"
    rf"|(?:<=|>=|<|>) *{_PYTHON}(?:\.{_PYTHON})*"
    rf"|~= *{_PYTHON}(?:\.{_PYTHON})+)"
)
_SEGMENT = r"(?!(?:\.|%2[Ee]){1,2}(?:/|\Z))(?:[A-Za-z0-9._~+-]|%(?!2[Ff]|5[Cc]|7[Ff])[2-9A-Fa-f][0-9A-Fa-f])+"
_HOST = r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?"
_LOOPBACK = r"(?:127\.0\.0\.1|localhost|\[::1\])"

ROW_FORMS = {
    # as packaging normalizes a name, and writes a version (PEP 503, PEP 440)
    "project": re.compile("[a-z0-9]+(?:-[a-z0-9]+)*"),
    "version": re.compile(rf"(?:[1-9][0-9]*!)?{_RELEASE}(?:\+{_LOCAL_PART}(?:\.{_LOCAL_PART})*)?"),
    "filename": re.compile(
        r"(?P<project>[A-Za-z0-9]+(?:[._][A-Za-z0-9]+)*)-(?P<version>[a-z0-9.!+]+)"
        rf"(?:-[0-9][A-Za-z0-9_.]*)?-[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*-{_TAG}-{_TAG}\.whl"
    ),
    "sha256": re.compile(SHA256),
    "metadata_sha256": re.compile(SHA256),
    "requires_python": re.compile(f"(?:{_PYTHONS}(?: *, *{_PYTHONS})*)?"),
    "arch": re.compile(r"gfx[0-9a-z-]+(:[a-z0-9:+-]+)?"),
    "foreign arch": re.compile("sm_[0-9]{2,3}[a-z]?"),
    "glibc": re.compile(r"[0-9]{1,4}\.[0-9]{1,4}(?:\.[0-9]{1,4})?"),
    # as pydantic writes it; the years are those that every calculation can take
    "time": re.compile(
        r"2[0-9]{3}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{6})?(?:Z|[+-][0-9]{2}:[0-9]{2})"
    ),
    # http only from this machine: a mirror of GitHub's API that runs here. file is what `index DIR --dest` writes
    "url": re.compile(
        rf"(?:https://{_HOST}(?::[0-9]{{1,5}})?|http://{_LOOPBACK}(?::[0-9]{{1,5}})?|file://)(?:/{_SEGMENT})+"
    ),
}
"""By the name of the field; of a list, what each of its texts looks like.

`arch` is that of an AMD GPU, `foreign arch` that of one of NVIDIA; `time` that of `published` and of evidence.
"""

DEEPEST = 6
"""How deep lists and objects are nested in a row; the texts of a finding are at 5."""
_REQUIRED = ("project", "version", "filename", "sha256", "metadata_sha256", "requires_python")
_CONTROLS = "\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
"""What a terminal or a browser acts on: control characters, ends of lines, changes of direction, half characters."""
_CONTROL = re.compile(f"[{_CONTROLS}]")
_CONTROL_IN_LINES = re.compile(rf"(?![\n\t])[{_CONTROLS}]")


def _has_form(field: str, value: object) -> bool:
    """Whether a value is a text of the form that a field of `ROW_FORMS` has."""
    longest = LONGEST_TEXT if field in ("url", "requires_python") else LONGEST_NAME
    return isinstance(value, str) and len(value) <= longest and ROW_FORMS[field].fullmatch(value) is not None


def parse_lines(data: bytes, refusal: InputError) -> Iterator[tuple[InputError, dict[str, Any]]]:
    """The rows of a manifest's bytes in their order, without their format, and for each the refusal with its place.

    A manifest is UTF-8, one JSON object a line and nothing else, no blank line, carriage return or byte order mark;
    each line ends in a line feed, which the last may lack. `which` of `refusal` names the manifest. Raises `InputError`
    with the line for a row that is none, that a newer factory wrote, or whose file another row has.
    """
    lines = data.split(b"\n")  # of bytes, because text also ends lines at U+2028 and the like
    if not lines[-1]:
        lines.pop()
    first: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        place = InputError(refusal.what, f"{refusal.which}:{number}", refusal.hint)
        try:
            row = _parse(line)
            written = row.pop("format", 1)
            if _whole(written) > ROW_FORMAT:
                raise InputError(
                    "needs a newer wheelfactory",
                    f"{place.which} is of format {written}, and this one reads up to {ROW_FORMAT}",
                    "update wheelfactory; download a doctor.py again",
                )
            _expect(_whole(written) > 0, "format", "not one", written)
            _check(row)
            other = first.setdefault(row["filename"], number)
            _expect(other == number, "filename", f"also in line {other}", row["filename"])
        except (ValueError, RecursionError) as error:
            said = "nested too deep" if isinstance(error, RecursionError) else str(error)
            said = said.encode("ascii", "backslashreplace").decode()[:200]
            raise InputError(place.what, f"{place.which}: {said}", place.hint) from None
        yield place, row


def _parse(line: bytes) -> dict[str, Any]:
    """The object of a line. Raises `ValueError` for what is no JSON, and for what readers of JSON disagree about."""
    # a blank line, a carriage return and a byte order mark end here too
    if not (line.startswith(b"{") and line.endswith(b"}")):
        raise ValueError("not one JSON object, from the first character of its line to the last")
    try:
        return dict(_DECODER.decode(line.decode("utf-8")))
    except ValueError as error:
        raise ValueError(f"Invalid JSON: {error}") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object has a key twice")
    return found


def _integer(text: str) -> int:
    if len(text) > len(str(LARGEST_FILE)):
        raise ValueError("a number is too long")
    return int(text)


def _float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number is too large")
    return number


def _constant(name: str) -> None:
    raise ValueError(f"{name} is no number")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_int=_integer, parse_float=_float, parse_constant=_constant)


def _check(row: dict[str, Any]) -> None:
    """Compare the fields of a row with their forms and with each other. Raises `ValueError` with the field."""
    for name, value in row.items():
        # what a gate says may have lines
        _check_texts(name[:80], {name: value}, _CONTROL_IN_LINES if name == "gates" else _CONTROL)
    for name in _REQUIRED:
        _expect_form(name, row.get(name), name)
    for name in ("url", "glibc"):
        _expect(row.get(name) is None or _has_form(name, row[name]), name, "not one", row.get(name))
    for name in ("yanked", "cell", "label", "source"):
        _expect(isinstance(row.get(name), (str, type(None))), name, "not a text", row.get(name))
    _expect(row.get("yanked") is None or row["yanked"].strip() != "", "yanked", "no reason", row.get("yanked"))
    size, abi = row.get("size"), row.get("cxx11_abi")
    _expect(size is not None, "size", "missing")
    _expect(0 < _whole(size) <= LARGEST_FILE, "size", "not one", size)
    _expect(abi is None or isinstance(abi, bool), "cxx11_abi", "neither true nor false", abi)
    _expect_time("published", row.get("published"))
    for arch in _list(row, "offload_archs"):
        _expect_form("offload_archs", arch, "arch")
    _check_names(row["project"], row["version"], row["filename"])
    _check_cell(row["version"], row.get("cell"), row.get("label"))
    _check_gates(_list(row, "gates"))
    _check_evidence(_list(row, "evidence"))


def _check_texts(field: str, value: object, control: re.Pattern[str], depth: int = 0) -> None:
    """Every text in a value, a key too, is plain and not too long, and nothing is nested deeper than findings are."""
    _expect(depth <= DEEPEST, field, "nested too deep")
    if isinstance(value, str):
        _expect(len(value) <= LONGEST_TEXT, field, "a text that is too long", value)
        _expect(not control.search(value), field, "a text with control characters", value)
    elif isinstance(value, dict):
        for key, inner in value.items():
            _expect(len(key) <= LONGEST_NAME, field, "a key that is too long", key)
            _check_texts(field, key, control, depth + 1)
            _check_texts(field, inner, control, depth + 1)
    elif isinstance(value, list):
        for inner in value:
            _check_texts(field, inner, control, depth + 1)


def _check_names(project: str, version: str, filename: str) -> None:
    """The file is one of the project and the version."""
    parts = ROW_FORMS["filename"].fullmatch(filename)
    assert parts  # or it would have been refused
    found = re.sub("[._]", "-", parts["project"]).lower(), parts["version"]
    _expect(found == (project, version), "filename", f"not of {project} {version}", filename)


def _check_cell(version: str, cell: str | None, label: str | None) -> None:
    """The version is that of the cell, with its label; a build from a commit has the commit in the label."""
    public, _, local = version.partition("+")
    _expect(label in (None, local), "label", f"not that of {version}", label)
    try:
        named = Label.parse(local) if label is not None or cell is not None else None
    except InputError as error:
        raise ValueError(f"label: {error.what}: {error.which!a}") from None
    if cell is not None and named is not None:
        try:
            known = Cell.parse(cell)
        except InputError as error:
            raise ValueError(f"cell: {error.what}: {cell!a}") from None
        agrees = known.flash_attn == public and Label.from_cell(known, named.commit) == named
        _expect(agrees, "cell", f"not that of {version}", cell)


def _check_gates(gates: list[Any]) -> None:
    """Each is an object with a name of its own and a status; the GPU that one ran on has the form of an arch."""
    names = set()
    for gate in gates:
        _expect(isinstance(gate, dict), "gates", "not an object", gate)
        for key in ("gate", "status"):
            _expect(isinstance(gate.get(key), str), f"gates.{key}", "missing or not a text", gate.get(key))
        _expect(gate["gate"] not in names, "gates", "there twice", gate["gate"])
        names.add(gate["gate"])
        versions = gate.get("versions", {})
        _expect(isinstance(versions, dict), "gates.versions", "not an object", versions)
        if gate["gate"] == "gpu" and "gpu" in versions:
            _expect_form("gates.versions.gpu", versions["gpu"], "arch")


def _check_evidence(evidence: list[Any]) -> None:
    """Each is an object with a time and the arch of a GPU of its vendor."""
    for piece in evidence:
        _expect(isinstance(piece, dict), "evidence", "not an object", piece)
        _expect_time("evidence.time", piece.get("time"))
        _expect_form("evidence.arch", piece.get("arch"), "arch" if piece.get("vendor") == "amd" else "foreign arch")


def _list(row: dict[str, Any], field: str) -> list[Any]:
    found: Any = row.get(field, [])
    if not isinstance(found, list):
        raise ValueError(f"{field}: not a list: {ascii(found)[:80]}")
    return found


def _whole(value: object) -> int:
    """A whole number; 0, which is never a right one here, for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _expect_time(field: str, value: object) -> None:
    _expect_form(field, value, "time")
    try:
        datetime.fromisoformat(str(value).replace("Z", "+00:00"))
    except ValueError as error:
        raise ValueError(f"{field}: {error}") from None


def _expect_form(field: str, value: object, form: str) -> None:
    _expect(value is not None, field, "missing")
    _expect(_has_form(form, value), field, "not one", value)


def _expect(right: bool, field: str, reason: str, value: object = None) -> None:
    if not right:
        raise ValueError(f"{field}: {reason}" + ("" if value is None else f": {ascii(value)[:80]}"))
