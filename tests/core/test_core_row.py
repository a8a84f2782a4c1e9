"""Rows of a manifest: `release.manifest` and `doctor.published_wheels` accept and refuse the same rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet
from packaging.utils import is_normalized_name, parse_wheel_filename
from packaging.version import Version

from wheelfactory.core.errors import InputError
from wheelfactory.core.row import LONGEST_TEXT, ROW_FORMAT, ROW_FORMS
from wheelfactory.doctor.published_wheels import parse_wheels
from wheelfactory.release.manifest import parse_rows

Reader = Callable[[bytes], Sequence[Any]]

READERS: dict[str, Reader] = {
    "release": lambda data: parse_rows(data, "manifest.jsonl"),
    "doctor": lambda data: parse_wheels(data, "manifest.jsonl", "https://wheels.example/"),
}

CELL = "fa2.8.3-rocm6.4-torch2.9.1-cp311-ck"
WHEEL = "flash_attn-2.8.3+rocm64torch2.9-cp311-cp311-manylinux_2_28_x86_64.whl"
FINDING = {"file": "a", "expected": "b\n\tc", "found": "d", "remedy": "e"}
GATE = {"gate": "gpu", "status": "passed", "versions": {"gpu": "gfx942"}, "findings": [FINDING]}
EVIDENCE = {
    "vendor": "amd",
    "device": "AMD Instinct MI300X",
    "arch": "gfx942",
    "torch": "2.9.1",
    "modules": ["flash_attn_2_cuda"],
    "cases": 3,
    "nearest": {"case": "fp16 d64", "result": "dq", "error": 0.1, "bound": 0.2},
    "time": "2026-11-22T09:30:00Z",
    "factory": "0.1.0",
}
ROW: dict[str, Any] = {
    "format": 2,
    "project": "flash-attn",
    "version": "2.8.3+rocm64torch2.9",
    "filename": WHEEL,
    "sha256": "0" * 64,
    "size": 1,
    "requires_python": ">=3.9",
    "metadata_sha256": "1" * 64,
    "published": "2026-01-01T00:00:00Z",
    "cell": CELL,
    "label": "rocm64torch2.9",
    "offload_archs": ["gfx90a", "gfx942"],
    "cxx11_abi": True,
    "glibc": "2.28",
    "source": "sha256:" + "2" * 64,
    "gates": [GATE],
    "evidence": [EVIDENCE],
}
EINOPS = {
    **{key: ROW[key] for key in ("format", "sha256", "metadata_sha256", "size", "published")},
    "project": "einops",
    "version": "0.8.2",
    "filename": "einops-0.8.2-py3-none-any.whl",
    "requires_python": "",
}


def read(data: bytes) -> list[Sequence[Any]]:
    """The rows of each of the two readers."""
    return [parse(data) for parse in READERS.values()]


def line(row: object) -> bytes:
    return json.dumps(row).encode() + b"\n"


def refusal(data: bytes) -> str:
    """The error of the two readers, which must be the same."""
    messages = set()
    for parse in READERS.values():
        with pytest.raises(InputError) as refused:
            parse(data)
        assert refused.value.hint
        messages.add(str(refused.value))
    (message,) = messages
    assert message.isprintable()
    return message


def text_of(**changes: object) -> bytes:
    """The line of a good row with values put in as JSON text, which `json` would not write."""
    row = {**ROW, **dict.fromkeys(changes, "@")}
    text = json.dumps(row)
    for key, value in changes.items():
        text = text.replace(f'"{key}": "@"', f'"{key}": {value}')
    return text.encode() + b"\n"


# -- formats


def test_a_row_of_a_newer_or_invalid_format_is_refused() -> None:
    for newer in (ROW_FORMAT + 1, 10**18):
        error = refusal(line(ROW) + line({"format": newer, "anything": ["else"]}))
        assert error.startswith(f"needs a newer wheelfactory: manifest.jsonl:2 is of format {newer}")
    for invalid in (0, -1, True, None, "2", 2.0, [2]):
        assert "manifest.jsonl:1: format: missing or invalid" in refusal(line({**ROW, "format": invalid}))


# -- lines


def test_an_empty_manifest_has_no_rows_and_a_last_line_may_lack_its_line_feed() -> None:
    assert read(b"") == [(), ()]
    assert read(line(ROW)[:-1]) == read(line(ROW))


def test_a_line_is_one_object_and_nothing_else() -> None:
    good = line(ROW)
    for data in (
        *(b"\n", good + b"\n", b"\n" + good, b"  \n", good.replace(b"\n", b"\r\n"), b"\xef\xbb\xbf" + good),
        *(good[:-20], good[:-1] * 2, b"[]\n", b"null\n", good.decode().encode("utf-16")),
    ):
        assert refusal(data).startswith("not a manifest row: manifest.jsonl:")


def test_two_rows_of_one_file_are_refused_with_both_lines() -> None:
    error = refusal(line(ROW) + line(EINOPS) + line({**ROW, "sha256": "3" * 64}))
    assert error.startswith("not a manifest row: manifest.jsonl:3: filename: also in line 1")


# -- JSON


def test_json_that_parsers_read_differently_is_refused() -> None:
    figures = '[{"gate":"size","status":"passed","figures":{"a":%s}}]'
    for data, why in (
        (b'{"size":1,' + line(ROW)[1:], "a key twice"),
        (text_of(gates='[{"gate":"a","status":"passed","gate":"b"}]'), "a key twice"),
        (text_of(size="NaN"), "NaN is not a number"),
        (text_of(size="-Infinity"), "-Infinity is not a number"),
        (text_of(size="1e999"), "too large"),
        (text_of(size="1" * 5000), "too long"),
        (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", ""),
        (text_of(x="[" * 9 + "]" * 9), "nested too deep"),
        (text_of(source=r'"\ud800"'), "control characters"),
        (line(ROW).replace(b"flash-attn", b"\xff"), "Invalid JSON"),
        *((text_of(gates=figures % number), "Invalid JSON") for number in ("NaN", "Infinity", "1e999")),
    ):
        error = refusal(data)
        assert error.startswith("not a manifest row: manifest.jsonl:1: ")
        assert why in error


# -- fields


INVALID_VALUES: tuple[tuple[str, object], ...] = (
    *(("project", name) for name in ("..", ".", "../../../x", "a/b", "Flash_Attn", "", "-a", "a--b", "é", 1, None)),
    *(("version", text) for text in ("2.8.3 --pre", "v2.8.3", "02.8.3", "2.8.3+A", "2.8.3+a_b", "1-1", "", "..", None)),
    *(("filename", name) for name in ("../" + WHEEL, "x\\" + WHEEL, "wheels/" + WHEEL, WHEEL + "/..", "..", "a.whl")),
    ("filename", WHEEL.replace("-cp311-cp311", "-cp311")),
    ("filename", WHEEL.replace("flash_attn", "flash__attn")),
    ("filename", WHEEL.replace("_x86_64", "_" * 200 + "x86_64")),
    ("filename", None),
    *(("sha256", text) for text in ("0" * 63, "A" * 64, "0" * 64 + "\n", None)),
    ("metadata_sha256", ""),
    *(("size", size) for size in (0, -1, 1 << 63, True, "1", 1.0, None)),
    *(
        ("requires_python", text)
        for text in ("3.9", ">=3.9 or so", ">=" + "9" * 5000, ">=3.9\n", "~=3", "===3", None, 3)
    ),
    *(("published", text) for text in ("2026-01-01T00:00:00", "2026-13-01T00:00:00Z", "once", "0001-01-01T00:00:00Z")),
    *(("published", time) for time in (0, None, "2026-01-01", "2026-01-01T24:00:00Z", "2026-01-01T00:00:00+24:00")),
    *(("cell", text) for text in ("fa2.8.3", "", 1, CELL.replace("6.4", "6.3"), CELL.replace("2.8.3", "2.8.2"))),
    ("cell", CELL.replace("ck", "triton").replace("cp311", "py3")),
    *(("label", text) for text in ("rocm710torch2.9", "", 1, "rocm64torch2.10", "rocm64torch2.9triton", "../..")),
    *(("offload_archs", archs) for archs in ("gfx942", ["x"], ["gfx942\x1b[2J"], [1], None)),
    *(("cxx11_abi", abi) for abi in ("yes", 1)),
    *(("torch_symbols", names) for names in ("_ZN3c104warnEv", ["a b"], ["\x1b[2J"], [""], [1], None)),
    *(("other_torches", torches) for torches in ("2.11", ["2.11.0"], ["2.11\n"], [2.11], None)),
    *(("glibc", text) for text in ("new", "2", "2.28\n", "2." + "9" * 5000, 2.28)),
    *(("source", text) for text in (1, "a\nb", "x" * (LONGEST_TEXT + 1))),
    *(("yanked", text) for text in ("", " ", 1, True, "a\x1b[2J", "a\nb", "a\x00", "a\x85", "x" * (LONGEST_TEXT + 1))),
    *(("yanked", f"a{mark}b") for mark in "\u202a\u202e\u2066\u2069\u2028\u2029"),
    ("gates", None),
    ("gates", {}),
    ("gates", [[]]),
    ("gates", [{"gate": "import"}]),
    ("gates", [{"gate": 1, "status": "passed"}]),
    ("gates", [GATE, {**GATE, "status": "failed"}]),
    ("gates", [{**GATE, "versions": {"gpu": "gfx942; reboot"}}]),
    ("gates", [{**GATE, "versions": 1}]),
    ("gates", [{**GATE, "detail": "a\x1b[2J"}]),
    ("gates", [{**GATE, "detail": "x" * (LONGEST_TEXT + 1)}]),
    ("gates", [{**GATE, "findings": [{**FINDING, "found": "\u202e"}]}]),
    ("gates", [{**GATE, "figures": {"\x07": 1}}]),
    ("evidence", [1]),
    ("evidence", [{**EVIDENCE, "arch": "gfx942\x1b[2J"}]),
    ("evidence", [{**EVIDENCE, "arch": "sm_90"}]),
    ("evidence", [{**EVIDENCE, "arch": None}]),
    ("evidence", [{**EVIDENCE, "time": "2026-11-22T09:30:00"}]),
    ("evidence", [{**EVIDENCE, "device": "AMD\u2066"}]),
)


def test_an_invalid_value_is_refused_with_its_field() -> None:
    for field, value in INVALID_VALUES:
        error = refusal(line(EINOPS) + line({**ROW, field: value}))
        assert error.startswith(f"not a manifest row: manifest.jsonl:2: {field}")


def test_a_missing_field_is_named() -> None:
    for field in ("project", "version", "filename", "sha256", "size", "requires_python", "published"):
        without = {name: value for name, value in ROW.items() if name != field}
        assert refusal(line(without)) == f"not a manifest row: manifest.jsonl:1: {field}: missing"


def test_a_file_name_must_match_project_and_version() -> None:
    others = (WHEEL.replace(old, new) for old, new in (("2.8.3", "2.8.2"), ("2.8.3", "2.8.3.0"), ("rocm64", "rocm63")))
    for name in ("einops-2.8.3+rocm64torch2.9-py3-none-any.whl", *others):
        assert "filename: not a wheel of flash-attn 2.8.3+rocm64torch2.9" in refusal(line({**ROW, "filename": name}))


def test_cell_and_label_are_optional() -> None:
    for kept in (("cell", "label"), ("cell",), ("label",), ()):
        without = {name: value for name, value in ROW.items() if name in kept or name not in ("cell", "label")}
        assert all(read(line(without)))


def test_a_build_from_a_commit_needs_the_commit_in_its_label() -> None:
    row = {**ROW, "filename": WHEEL.replace("2.9", "2.9git0123abc"), "version": ROW["version"] + "git0123abc"}
    cell = ROW["cell"].replace("fa2.8.3", "fa2.8.3+git0123abc")
    preview = {**row, "label": ROW["label"] + "git0123abc", "cell": cell}
    assert all(read(line(preview)))
    assert "cell: does not match" in refusal(line({**preview, "cell": ROW["cell"]}))
    assert "label: does not match" in refusal(line(row))


GOOD_URLS = (
    *(None, f"https://files.example/v1/{WHEEL}", f"https://files.example:8443/v1/{WHEEL.replace('+', '%2B')}"),
    *(f"http://{host}/{WHEEL}" for host in ("127.0.0.1:8000", "localhost", "[::1]:8000")),
)
PATHS = (
    *("", "/x.whl#egg=evil", "/x.whl?a=b", "/../x.whl", "/%2e%2E/x.whl", "/a/.", "//x.whl", "/a%2fx.whl", "/a\\x.whl"),
    *("/a%5cx.whl", "/%00x.whl", "/$(reboot)", "/x.whl;reboot", "/x.whl'", "/x.whl\n", "/\u202ex.whl", "/é.whl"),
)
BAD_URLS = (
    *("javascript:alert(1)", "JavaScript:x", "data:text/html,x", "ftp://files.example/x.whl", "mailto:a@b.example", 1),
    *("http://files.example/x.whl", "http://127.0.0.1.evil.example/x.whl", "http://localhost@evil.example/x.whl", ""),
    *("//files.example/x.whl", "/x.whl", "../x.whl", "x.whl", "wheels/x.whl", "https:", "https://", "https:///x"),
    *("https://user:secret@files.example/x.whl", "file://server/share/x.whl"),
    *(f"https://files.example{path}" for path in PATHS),
)


def test_a_file_has_no_url_or_one_by_https_or_on_loopback() -> None:
    for url in GOOD_URLS:
        assert all(read(line({**ROW, "url": url})))
    for bad in BAD_URLS:
        assert "manifest.jsonl:1: url: " in refusal(line({**ROW, "url": bad}))


# -- forms

FEW = settings(max_examples=25)
"""Strings that match a long pattern take milliseconds each to make."""


@FEW
@given(st.from_regex(ROW_FORMS["filename"], fullmatch=True))
def test_the_form_of_a_file_name_matches_wheels_only(name: str) -> None:
    parts = ROW_FORMS["filename"].fullmatch(name)
    assert parts
    if ROW_FORMS["version"].fullmatch(parts["version"]):
        project, version, *_ = parse_wheel_filename(name)
        assert project == parts["project"].lower().replace("_", "-").replace(".", "-")
        assert str(version) == parts["version"]


@FEW
@given(*(st.from_regex(ROW_FORMS[field], fullmatch=True) for field in ("project", "version", "requires_python")))
def test_the_forms_match_only_what_packaging_takes_as_normalized(project: str, version: str, pythons: str) -> None:
    assert is_normalized_name(project)
    assert str(Version(version)) == version
    SpecifierSet(pythons)


def test_real_specifiers_are_accepted() -> None:
    for text in (">=3.8", ">= 3.8, <3.13", "!=3.0.*,!=3.1.*,>=2.7", "~=3.9", "==3.11.4", "<4", ""):
        assert all(read(line({**ROW, "requires_python": text})))
