"""Gate record: a file added, removed or changed after RECORD was written is found and named."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from wheel_factory import CK, build_record, finished_wheel, read_zip, small_machine, tamper, write_zip
from wheelfactory.verify.gate import Subject
from wheelfactory.verify.members import record
from wheelfactory.verify.result import GateResult, Status
from wheelfactory.wheel.read import Wheel

INTERFACE = "flash_attn/flash_attn_interface.py"
RECORD = "flash_attn-2.8.3+rocm64torch2.9.dist-info/RECORD"


def result_of(path: Path) -> GateResult:
    return record(Subject(Wheel.open(path), build_record(CK), CK, **small_machine(path.parent)))


@pytest.mark.parametrize("name", ["a, b.py", 'say "x".py', "\N{GREEK SMALL LETTER ALPHA}.py", "deep/er/a.py"])
def test_a_true_record_passes(tmp_path: Path, name: str) -> None:
    result = result_of(finished_wheel(tmp_path, members={name: b"x = 1\n"}))

    assert (result.gate, result.status, result.findings) == ("record", Status.PASSED, ())
    assert result.detail == "5 members"


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        pytest.param({"flash_attn/added.py": b""}, "flash_attn/added.py is not mentioned in RECORD", id="added"),
        pytest.param({INTERFACE: None}, f"{INTERFACE} is listed in RECORD and missing", id="removed"),
        pytest.param(
            {INTERFACE: b"def flash_attn_fun_() -> None: ...\n"}, f"of {INTERFACE} didn't match", id="changed"
        ),
        pytest.param({f"{RECORD}.jws": b""}, "RECORD.jws is not mentioned in RECORD", id="a signature"),
        pytest.param({INTERFACE: b""}, f"of {INTERFACE} didn't match RECORD", id="emptied"),
        pytest.param({RECORD: None}, f"missing from the wheel: {RECORD}", id="no RECORD"),
        pytest.param({RECORD: b""}, f"{INTERFACE} is not mentioned in RECORD", id="empty RECORD"),
        pytest.param({RECORD: b"one,two\n"}, "RECORD cannot be read: Row Index 0", id="RECORD with two columns"),
        pytest.param({RECORD: b'"open\n'}, "RECORD cannot be read", id="RECORD that is no table"),
        pytest.param({RECORD: b"\xff,,\n"}, "codec can't decode", id="RECORD that is not UTF-8"),
    ],
)
def test_a_wheel_changed_after_it_was_built(tmp_path: Path, changes: dict[str, bytes | None], found: str) -> None:
    path = tamper(finished_wheel(tmp_path), changes)

    result = result_of(path)

    assert result.status is Status.FAILED
    assert any(found in finding.found for finding in result.findings)
    assert {(finding.file, finding.expected) for finding in result.findings} == {(path.name, "RECORD to be right")}
    assert "build or download it again" in result.findings[0].cure


def test_each_change_is_one_finding_without_the_place_of_the_file(tmp_path: Path) -> None:
    changes = {"a.py": b"", "b.py": b"", "flash_attn/__init__.py": b"1", INTERFACE: None}

    result = result_of(tamper(finished_wheel(tmp_path), changes))

    assert [finding.found for finding in result.findings] == [
        f"{INTERFACE} is listed in RECORD and missing",
        "hash / size of flash_attn/__init__.py didn't match RECORD",
        "a.py is not mentioned in RECORD",
        "b.py is not mentioned in RECORD",
    ]


@pytest.mark.parametrize(
    ("entry", "found"),
    [
        pytest.param(b",,", f"hash / size of {INTERFACE} is not included in RECORD", id="no hash"),
        pytest.param(b",sha256=AAAA,36", f"hash / size of {INTERFACE} didn't match RECORD", id="another hash"),
        pytest.param(b",nonsense,36", f"entry in RECORD file for {INTERFACE} is invalid", id="no hash of any kind"),
        pytest.param(b",md5=AAAA,36", f"{INTERFACE} has a hash in RECORD that must not be used", id="a weak hash"),
        pytest.param(b",shake_128=AAAA,36", f"{INTERFACE} has a hash in RECORD that must", id="a hash of no length"),
        pytest.param(
            b",sha256=AAAA,36\n" + INTERFACE.encode() + b",,", f"{INTERFACE} is listed 2 times", id="two entries"
        ),
    ],
)
def test_an_entry_of_record_that_proves_nothing(tmp_path: Path, entry: bytes, found: str) -> None:
    path = finished_wheel(tmp_path)
    lines = read_zip(path)[RECORD].splitlines()
    kept = [INTERFACE.encode() + entry if line.startswith(INTERFACE.encode()) else line for line in lines]

    result = result_of(tamper(path, {RECORD: b"\n".join(kept)}))

    assert any(found in finding.found for finding in result.findings)


def test_a_member_that_does_not_unpack(tmp_path: Path) -> None:
    path = finished_wheel(tmp_path)
    write_zip(path, read_zip(path), compression=zipfile.ZIP_STORED)
    path.write_bytes(path.read_bytes().replace(b"def flash_attn_func", b"def flash_attn_fun_"))

    (finding,) = result_of(path).findings

    assert "Bad CRC-32" in finding.found
