"""The glossary: how flags are found, and what its file must not have."""

from __future__ import annotations

from pathlib import Path

import pytest

from wheelfactory.explain.glossary import PATH, Glossary, glossary, read_table


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("  bf16: bfloat16", "  fp16: bfloat16", "'fp16' is given twice"),
        ("direction: backward", "directions: backward", "Extra inputs are not permitted"),
    ],
)
def test_a_mistake_in_a_table_is_an_error(tmp_path: Path, old: str, new: str, problem: str) -> None:
    path = tmp_path / "table.yaml"
    path.write_text(PATH.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    with pytest.raises(ValueError, match=problem):
        read_table(path, Glossary)


def test_a_flag_is_found_by_name_or_by_prefix() -> None:
    found = glossary()
    assert found.find_flag_meaning("-DUSE_ROCM=1") == ("torch's headers use ROCm", "torch")
    assert found.find_flag_meaning("-O2") == ("optimize", "")
    assert found.find_flag_meaning("-cuid=x") == (
        "a fixed id, so that the same source gives the same object on every machine",
        "wheelfactory",
    )
    assert found.find_flag_meaning("-ffrobnicate") is None
    assert found.find_flag_meaning("-Wl,-rpath,/opt") == ("for the linker", "")  # no warning flag, despite -W
    assert found.find_flag_meaning("-Wno-unused") == ("which warnings are printed or are errors", "")


def test_no_name_part_is_also_a_type() -> None:
    found = glossary()
    assert not set(found.name_parts) & set(found.types)
