"""The glossary is validated strictly; each problem is reported with line and column."""

from __future__ import annotations

from pathlib import Path

import pytest

from wheelfactory.core.errors import InputError
from wheelfactory.explain.glossary import PATH, Glossary, glossary, read_glossary

TEXT = PATH.read_text(encoding="utf-8")


def reading(tmp_path: Path, text: str) -> Glossary:
    path = tmp_path / "glossary.yaml"
    path.write_text(text, encoding="utf-8")
    return read_glossary(path)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("\nremedies:", "\nremedy:", "remedies: Field required"),
        ("name: runaway inlining", "title: runaway inlining", "causes.1.title: Extra inputs are not permitted"),
        ("'std::bad_alloc'", "'(bad_alloc'", "causes.0.patterns: Input should be a valid regular expression"),
        ("name: runaway inlining", "name: ''", "causes.1.name: String should have at least 1 character"),
        ("'-O2': optimize", "'-O2': [optimize]", "flags.anyone.-O2: Input should be a valid string"),
        ("\n  anyone:", "\n  nobody:", "flags.nobody.[key]: Input should be 'flash-attn', 'torch'"),
        ("direction: backward", "direction: sideways", "direction: Input should be 'forward' or 'backward'"),
        ("  bf16: bfloat16", "  fp16: bfloat16", "'fp16' is given twice"),
        ("fmha_fwd_api: 1", "fmha_fwd_api: one", "typical kernel counts.fmha_fwd_api: Input should be a valid integer"),
        ("warnings: [", "warnings: {", "expected ',' or '}'"),
    ],
)
def test_a_problem_is_reported_with_its_place(old: str, new: str, problem: str, tmp_path: Path) -> None:
    assert old in TEXT
    with pytest.raises(InputError) as caught:
        reading(tmp_path, TEXT.replace(old, new, 1))
    assert caught.value.what == "bad glossary"
    assert problem in caught.value.which
    place = caught.value.which.removeprefix(f"{tmp_path}/glossary.yaml:").split(":")
    assert all(number.isdigit() for number in place[:2])
    assert caught.value.hint


def test_a_flag_is_found_by_name_or_by_prefix(tmp_path: Path) -> None:
    found = reading(tmp_path, TEXT)
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
