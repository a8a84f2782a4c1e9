"""Glossary and symptoms are validated strictly; each problem is reported with line and column."""

from __future__ import annotations

from pathlib import Path

import pytest

from wheelfactory.core.errors import InputError
from wheelfactory.explain import symptoms
from wheelfactory.explain.glossary import PATH, Glossary, glossary, read_document
from wheelfactory.explain.symptoms import SymptomTable

TEXTS = {Glossary: PATH.read_text(encoding="utf-8"), SymptomTable: symptoms.PATH.read_text(encoding="utf-8")}


@pytest.mark.parametrize(
    ("model", "old", "new", "problem"),
    [
        (SymptomTable, "\nremedies:", "\nremedy:", "remedies: Field required"),
        (SymptomTable, "name: runaway inlining", "title: runaway inlining", "title: Extra inputs are not permitted"),
        (SymptomTable, "'std::bad_alloc'", "'(bad_alloc'", "patterns: Input should be a valid regular expression"),
        (SymptomTable, "name: runaway inlining", "name: ''", "name: String should have at least 1 character"),
        (Glossary, "'-O2': optimize", "'-O2': [optimize]", "flags.anyone.-O2: Input should be a valid string"),
        (Glossary, "\n  anyone:", "\n  nobody:", "flags.nobody.[key]: Input should be 'flash-attn', 'torch'"),
        (Glossary, "direction: backward", "direction: sideways", "direction: Input should be 'forward' or 'backward'"),
        (Glossary, "  bf16: bfloat16", "  fp16: bfloat16", "'fp16' is given twice"),
        (
            Glossary,
            "fmha_fwd_api: 1",
            "fmha_fwd_api: one",
            "typical kernel counts.fmha_fwd_api: Input should be a valid integer",
        ),
        (SymptomTable, "\n    wheel: false", "\n    wheel: perhaps", "wheel: Input should be a valid boolean"),
    ],
)
def test_a_problem_is_reported_with_its_place(
    model: type[Glossary | SymptomTable], old: str, new: str, problem: str, tmp_path: Path
) -> None:
    path = tmp_path / "table.yaml"
    assert old in TEXTS[model]
    path.write_text(TEXTS[model].replace(old, new, 1), encoding="utf-8")
    with pytest.raises(InputError) as caught:
        read_document(path, model)
    assert caught.value.what == "bad table.yaml"
    assert problem in caught.value.which
    place = caught.value.which.removeprefix(f"{path}:").split(":")
    assert all(number.isdigit() for number in place[:2])
    assert caught.value.hint


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
