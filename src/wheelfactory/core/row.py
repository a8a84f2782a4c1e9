"""Parse and validate the rows of a manifest, for both of its readers: `release.manifest` and `doctor.published_wheels`.

Part of doctor.py, so it uses only the standard library of Python 3.9.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from wheelfactory.core.cell import Cell
from wheelfactory.core.errors import InputError
from wheelfactory.core.label import Label
from wheelfactory.core.strict import LARGEST_INTEGER, SHA256, parse_json

ROW_FORMAT = 2
"""The ``format`` of the rows."""

LONGEST_NAME = 246
"""Characters of a file name and of its parts: file systems allow 255, and the index adds ``.metadata``."""
LONGEST_TEXT = 10_000
"""Characters of any text in a row; the largest whole row of this factory has about as many bytes."""

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
    # an allow-list for every field, because rows end in commands, paths, pages and terminals
    # names as packaging normalizes them (PEP 503), versions as it writes them (PEP 440)
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
    "non-AMD arch": re.compile("sm_[0-9]{2,3}[a-z]?"),
    "symbol": re.compile(r"[A-Za-z_][A-Za-z0-9_$.]*"),
    "torch minor": re.compile(r"[0-9]{1,3}\.[0-9]{1,3}"),
    "glibc": re.compile(r"[0-9]{1,4}\.[0-9]{1,4}(?:\.[0-9]{1,4})?"),
    # as pydantic writes it; years from 2000, so that no time zone leaves the range of datetime
    "time": re.compile(
        r"2[0-9]{3}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{6})?(?:Z|[+-][0-9]{2}:[0-9]{2})"
    ),
    # http only on loopback, for a local mirror of GitHub's API; `index DIR --dest` writes file:
    "url": re.compile(
        rf"(?:https://{_HOST}(?::[0-9]{{1,5}})?|http://{_LOOPBACK}(?::[0-9]{{1,5}})?|file://)(?:/{_SEGMENT})+"
    ),
}
"""The form of each text field, and of each item of a list field.

`arch` is an AMD GPU and `non-AMD arch` an NVIDIA GPU; `time` is the form of `published` and of evidence.
"""

# the limit of nested lists and objects; the texts of a finding are at depth 5
MAX_DEPTH = 6
_REQUIRED = ("project", "version", "filename", "sha256", "metadata_sha256", "requires_python")
# characters that a terminal or browser interprets: control characters, line ends, text direction, surrogates
_CONTROLS = "\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_CONTROL = re.compile(f"[{_CONTROLS}]")
_CONTROL_IN_LINES = re.compile(rf"(?![\n\t])[{_CONTROLS}]")


def _has_form(field: str, value: object) -> bool:
    longest = LONGEST_TEXT if field in ("url", "requires_python") else LONGEST_NAME
    return isinstance(value, str) and len(value) <= longest and ROW_FORMS[field].fullmatch(value) is not None


def parse_lines(data: bytes, template: InputError) -> Iterator[tuple[InputError, dict[str, Any]]]:
    """Yield the rows of a manifest in order, without ``format``, each with a copy of `template` that names its line.

    A manifest is UTF-8 with one JSON object a line: no blank line, carriage return or byte order mark. The last line
    can lack its line feed. Raises `InputError` with the line number for an invalid row, a row of a newer format, or a
    second row of one file. `which` of `template` names the manifest.
    """
    lines = data.split(b"\n")  # bytes, because str.splitlines also splits at U+2028 and the like
    if not lines[-1]:
        lines.pop()
    first: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        error_here = InputError(template.what, f"{template.which}:{number}", template.hint)
        try:
            row = _parse_object(line)
            written = row.pop("format", None)
            if _positive_integer(written) > ROW_FORMAT:
                which = f"{error_here.which} is of format {written}, and this one reads up to {ROW_FORMAT}"
                raise InputError("needs a newer wheelfactory", which, "update wheelfactory; download a doctor.py again")
            _expect(_positive_integer(written) == ROW_FORMAT, "format", "missing or invalid", written)
            _check_row(row)
            other = first.setdefault(row["filename"], number)
            _expect(other == number, "filename", f"also in line {other}", row["filename"])
        except ValueError as error:
            raise InputError(error_here.what, f"{error_here.which}: {str(error)[:200]}", error_here.hint) from None
        yield error_here, row


def _parse_object(line: bytes) -> dict[str, Any]:
    """Parse one line. Raises `ValueError` for invalid JSON, and for JSON that parsers read differently."""
    # also rejects a blank line, a carriage return and a byte order mark
    if not (line.startswith(b"{") and line.endswith(b"}")):
        raise ValueError("not one JSON object, from the first character of its line to the last")
    try:
        return dict(parse_json(line))
    except ValueError as error:
        raise ValueError(f"Invalid JSON: {error}") from None


def _check_row(row: dict[str, Any]) -> None:
    """Check the form of each field and that fields agree. Raises `ValueError` that names the field."""
    for name, value in row.items():
        # only findings of gates span lines
        _check_texts(name[:80], {name: value}, _CONTROL_IN_LINES if name == "gates" else _CONTROL)
    for name in _REQUIRED:
        _expect_form(name, row.get(name), name)
    for name in ("url", "glibc"):
        _expect(row.get(name) is None or _has_form(name, row[name]), name, "invalid", row.get(name))
    for name in ("yanked", "cell", "label", "source"):
        _expect(isinstance(row.get(name), (str, type(None))), name, "not a string", row.get(name))
    _expect(row.get("yanked") is None or row["yanked"].strip() != "", "yanked", "empty", row.get("yanked"))
    size, abi = row.get("size"), row.get("cxx11_abi")
    _expect(size is not None, "size", "missing")
    _expect(0 < _positive_integer(size) <= LARGEST_INTEGER, "size", "invalid", size)
    _expect(abi is None or isinstance(abi, bool), "cxx11_abi", "not a boolean", abi)
    _expect_time("published", row.get("published"))
    for name, form in (("offload_archs", "arch"), ("torch_symbols", "symbol"), ("other_torches", "torch minor")):
        for item in _list(row, name):
            _expect_form(name, item, form)
    _check_names(row["project"], row["version"], row["filename"])
    _check_cell(row["version"], row.get("cell"), row.get("label"))
    _check_gates(_list(row, "gates"))
    _check_evidence(_list(row, "evidence"))


def _check_texts(field: str, value: object, control: re.Pattern[str], depth: int = 0) -> None:
    """Check the length and the characters of every text and key in a value, and its depth."""
    _expect(depth <= MAX_DEPTH, field, "nested too deep")
    if isinstance(value, str):
        _expect(len(value) <= LONGEST_TEXT, field, "too long", value)
        _expect(not control.search(value), field, "has control characters", value)
    elif isinstance(value, dict):
        for key, inner in value.items():
            _expect(len(key) <= LONGEST_NAME, field, "has a key that is too long", key)
            _check_texts(field, key, control, depth + 1)
            _check_texts(field, inner, control, depth + 1)
    elif isinstance(value, list):
        for inner in value:
            _check_texts(field, inner, control, depth + 1)


def _check_names(project: str, version: str, filename: str) -> None:
    parts = ROW_FORMS["filename"].fullmatch(filename)
    assert parts  # the form of the file name is checked before
    found = re.sub("[._]", "-", parts["project"]).lower(), parts["version"]
    _expect(found == (project, version), "filename", f"not a wheel of {project} {version}", filename)


def _check_cell(version: str, cell: str | None, label: str | None) -> None:
    """Check that version, label and cell agree."""
    public, _, local = version.partition("+")
    _expect(label in (None, local), "label", f"does not match {version}", label)
    try:
        parsed = Label.parse(local) if label is not None or cell is not None else None
    except InputError as error:
        raise ValueError(f"label: {error.what}: {error.which!a}") from None
    if cell is not None and parsed is not None:
        try:
            known = Cell.parse(cell)
        except InputError as error:
            raise ValueError(f"cell: {error.what}: {cell!a}") from None
        agrees = known.public_version == public and Label.from_cell(known) == parsed
        _expect(agrees, "cell", f"does not match {version}", cell)


def _check_gates(gates: list[Any]) -> None:
    """Check that each gate has a unique name, a status and, if it ran on a GPU, a valid arch."""
    names = set()
    for gate in gates:
        _expect(isinstance(gate, dict), "gates", "not an object", gate)
        for key in ("gate", "status"):
            _expect(isinstance(gate.get(key), str), f"gates.{key}", "missing or not a string", gate.get(key))
        _expect(gate["gate"] not in names, "gates", "duplicate", gate["gate"])
        names.add(gate["gate"])
        versions = gate.get("versions", {})
        _expect(isinstance(versions, dict), "gates.versions", "not an object", versions)
        if gate["gate"] == "gpu" and "gpu" in versions:
            _expect_form("gates.versions.gpu", versions["gpu"], "arch")


def _check_evidence(evidence: list[Any]) -> None:
    """Check that each piece has a time and a valid arch of its vendor."""
    for piece in evidence:
        _expect(isinstance(piece, dict), "evidence", "not an object", piece)
        _expect_time("evidence.time", piece.get("time"))
        _expect_form("evidence.arch", piece.get("arch"), "arch" if piece.get("vendor") == "amd" else "non-AMD arch")


def _list(row: dict[str, Any], field: str) -> list[Any]:
    found: Any = row.get(field, [])
    if not isinstance(found, list):
        raise ValueError(f"{field}: not a list: {ascii(found)[:80]}")
    return found


def _positive_integer(value: object) -> int:
    """`value`, or 0 if it is not an integer; 0 is invalid in every field."""
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _expect_time(field: str, value: object) -> None:
    _expect_form(field, value, "time")
    try:
        datetime.fromisoformat(str(value).replace("Z", "+00:00"))
    except ValueError as error:
        raise ValueError(f"{field}: {error}") from None


def _expect_form(field: str, value: object, form: str) -> None:
    _expect(value is not None, field, "missing")
    _expect(_has_form(form, value), field, "invalid", value)


def _expect(right: bool, field: str, reason: str, value: object = None) -> None:
    if not right:
        raise ValueError(f"{field}: {reason}" + ("" if value is None else f": {ascii(value)[:80]}"))
