"""Text from outside, in arguments and files, cannot control a terminal through any command."""

from __future__ import annotations

from pathlib import Path

import pytest

from wheel_factory import CK, MATRIX, extension, extension_name, finished_wheel, tamper
from wheelfactory import cli

HOSTILE = "\x1b[2J\u202e\r\x9b31m\u2028https://me:SECRET@127.0.0.1:9/\nhint: forged\n"
COMMANDS = """
inspect {}
verify {}
verify --from {}
doctor {}
explain {}
explain --json {}
matrix --matrix {}
matrix --only {}
matrix --published {}
plan {}
plan --only {}
status {}
status --json {}
publish {} {}
index {}
index {} --dest {}
run --only {}
build {}
build --matrix {} 2.8.3 3.11 2.5.1 6.2
repair {}
notes {}
kernels {}
ci answer {}
ci check {}
validate --python {}
bench {}
{}
""".strip().split("\n")


@pytest.mark.parametrize(
    ("place", "size"),
    [("argument", 0), ("argument", 200_000), ("name", 0), ("content", 0), ("content", 200_000)],
)
@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_that_is_printed_controls_a_terminal(
    command: str,
    place: str,
    size: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    text = HOSTILE + "x" * size
    name = text
    if place != "argument":
        path = tmp_path / ("input" if place == "content" else HOSTILE.replace("/", ":"))
        path.write_text(text, encoding="utf-8", errors="surrogateescape")
        name = str(path)
    code = cli.main([name if word == "{}" else word for word in command.split()])
    done = capsys.readouterr()
    assert code
    printed = done.out + done.err
    assert all(line.isprintable() for line in printed.split("\n"))
    assert "\nhint: forged" not in printed
    assert place == "name" or "SECRET" not in printed  # a name has no slashes
    assert len(printed) < 100_000


@pytest.mark.parametrize("command", ["inspect", "inspect --json", "verify --quick", "verify --json", "repair"])
def test_a_wheel_cannot_control_a_terminal_by_its_members(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = extension(*MATRIX.archs(CK)).replace(b"libc10.so", b"\x1b[2J\r\x9bmeh")
    files = {HOSTILE.replace("/", ":"): b"", extension_name(): named, "x" * 60_000: b""}
    wheel = tamper(finished_wheel(tmp_path), files)
    assert cli.main([*command.split(), str(wheel)]) or "inspect" in command
    done = capsys.readouterr()
    printed = done.out + done.err
    assert printed
    assert all(line.isprintable() for line in printed.split("\n"))
    assert "\nhint: forged" not in printed
