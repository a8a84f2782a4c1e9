"""The exports of an installed torch: what its libraries define, and nothing of a damaged file."""

from __future__ import annotations

from pathlib import Path

import pytest

from elf_factory import library
from wheelfactory.doctor.exports import read_exports

WARN, ERROR = "_ZN3c104warnEv", "_ZN3c105errorEi"


@pytest.fixture
def libraries(tmp_path: Path) -> Path:
    """A folder with a library of torch that defines `WARN` and needs `ERROR`."""
    (tmp_path / "libc10.so").write_bytes(library(defined=(WARN,), undefined=(ERROR,)))
    return tmp_path


def test_only_defined_and_wanted_symbols_count(libraries: Path) -> None:
    assert read_exports(str(libraries), {WARN, ERROR, "_ZN3c105otherEv"}) == (WARN,)
    assert read_exports(str(libraries), {ERROR}) == ()


def test_other_libraries_do_not_count(libraries: Path) -> None:
    (libraries / "libc10.so").rename(libraries / "libother.so")
    assert read_exports(str(libraries), {WARN}) == ()
    assert read_exports(str(libraries / "missing"), {WARN}) == ()


def test_a_damaged_library_defines_nothing(libraries: Path) -> None:
    whole = (libraries / "libc10.so").read_bytes()
    for size in (0, 3, 40, 64, len(whole) // 2, len(whole) - 40):
        (libraries / "libc10.so").write_bytes(whole[:size])
        assert read_exports(str(libraries), {WARN}) == ()
    for start in range(0, 64, 4):  # each field of the header
        (libraries / "libc10.so").write_bytes(whole[:start] + b"\xff" * 4 + whole[start + 4 :])
        assert set(read_exports(str(libraries), {WARN})) <= {WARN}
