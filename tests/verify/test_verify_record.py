"""Gate record: a file added, removed or changed after RECORD was written is found and named."""

from __future__ import annotations

from pathlib import Path

import pytest

from wheel_factory import finished_wheel, read_zip, small_machine, tamper
from wheelfactory.verify.gate import WheelSubject
from wheelfactory.verify.record import check_record
from wheelfactory.verify.result import GateResult, Status
from wheelfactory.wheel.read import Wheel

INTERFACE = "flash_attn/flash_attn_interface.py"
WHEEL = "flash_attn-2.8.3+rocm64torch2.9-cp311-cp311-manylinux_2_28_x86_64.whl"
RECORD = "flash_attn-2.8.3+rocm64torch2.9.dist-info/RECORD"


def result_of(path: Path) -> GateResult:
    return check_record(WheelSubject(Wheel.open(path), small_machine(path.parent)))


@pytest.mark.parametrize("name", ["a, b.py", 'say "x".py', "\N{GREEK SMALL LETTER ALPHA}.py", "deep/er/a.py"])
def test_a_true_record_passes_in_any_order(tmp_path: Path, name: str) -> None:
    path = finished_wheel(tmp_path, members={name: b"x = 1\n"})
    lines = sorted(read_zip(path)[RECORD].splitlines(keepends=True), reverse=True)

    result = result_of(tamper(path, {RECORD: b"".join(lines)}))

    assert (result.gate, result.status, result.findings) == ("record", Status.PASSED, ())
    assert result.detail == f"{len(read_zip(path))} members"


MEMBERS = "one line in RECORD for each member"


@pytest.mark.parametrize(
    ("changes", "file", "found"),
    [
        pytest.param({"flash_attn/added.py": b""}, "flash_attn/added.py", "no such line", id="added"),
        pytest.param({INTERFACE: None}, WHEEL, f"{INTERFACE},sha256=", id="removed"),
        pytest.param({INTERFACE: b"def flash_attn_fun_() -> None: ...\n"}, INTERFACE, "sha256=", id="changed"),
        pytest.param({INTERFACE: b""}, INTERFACE, "sha256=", id="emptied"),
        pytest.param({f"{RECORD}.jws": b""}, f"{RECORD}.jws", "no such line", id="a signature"),
        pytest.param({RECORD: b""}, INTERFACE, "no such line", id="empty RECORD"),
        pytest.param({RECORD: b"one,two\n"}, WHEEL, "one,two", id="RECORD with two columns"),
        pytest.param({RECORD: b"\xff,,\n"}, WHEEL, "\ufffd,,", id="RECORD that is not UTF-8"),
    ],
)
def test_a_wheel_changed_after_it_was_built(
    tmp_path: Path, changes: dict[str, bytes | None], file: str, found: str
) -> None:
    result = result_of(tamper(finished_wheel(tmp_path), changes))

    assert result.status is Status.FAILED
    (finding,) = [one for one in result.findings if one.file == file]
    assert found in finding.found
    assert "build or download it again" in finding.remedy


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(b",,", id="no hash"),
        pytest.param(b",sha256=AAAA,36", id="another hash"),
        pytest.param(b",md5=AAAA,36", id="a weak hash"),
        pytest.param(b",SHA256,SIZE\r", id="another end of the line"),
    ],
)
def test_a_wrong_line_is_a_finding(tmp_path: Path, entry: bytes) -> None:
    path = finished_wheel(tmp_path)
    (finding,) = result_of(tamper(path, {RECORD: with_entry(path, entry)})).findings

    assert finding.file == INTERFACE
    assert "in RECORD" in finding.expected


def test_record_has_one_line_for_each_member_and_one_line_feed_at_the_end(tmp_path: Path) -> None:
    path = finished_wheel(tmp_path)
    text = read_zip(path)[RECORD]
    for more in (text.splitlines()[0], b"%s,," % INTERFACE.encode()):
        (finding,) = result_of(tamper(path, {RECORD: text + more + b"\n"})).findings
        assert finding.expected == MEMBERS
    for end, found in ((b"", "0"), (b"\n\n", "2")):
        (finding,) = result_of(tamper(path, {RECORD: text.rstrip(b"\n") + end})).findings
        assert (finding.file, finding.expected, finding.found) == (RECORD, "one line feed at the end", found)


def with_entry(path: Path, entry: bytes) -> bytes:
    """RECORD of a wheel with another line for one member."""
    lines = read_zip(path)[RECORD].splitlines()
    own = next(line for line in lines if line.startswith(INTERFACE.encode()))
    _, digest, size = own.split(b",")
    other = INTERFACE.encode() + entry.replace(b"SHA256", digest).replace(b"SIZE", size)
    return b"\n".join([other if line == own else line for line in lines]) + b"\n"
