"""The three answers, looked up in tables of a small world: CK and Triton, two ROCm, two torch, three GPUs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from wheelfactory.core.strict import read_record
from wheelfactory.core.support import OTHER_BUILD, Answer, Finding, Support, SupportTable, SupportTables, other_ways

NO_CK = Finding(Answer.DOES_NOT_WORK, "CK does not support this GPU")
UNLISTED = Finding(Answer.MAY_WORK, "Triton does not list strix")
NO_TORCH = Finding(Answer.DOES_NOT_WORK, "torch 2.5 is not on ROCm 7")
OLD_ROCM = Finding(Answer.DOES_NOT_WORK, "torch for ROCm 6 is not built for strix")

NO_IMAGE = Finding(Answer.DOES_NOT_WORK, "no image has it")

TABLES = SupportTables(
    axes={
        "flash-attn": ("2.8.3",),
        "python": ("3.12",),
        "torch": ("2.9", "2.5"),
        "rocm": ("7", "6"),
        "backend": ("ck", "triton"),
        "gpu": ("gfx942", "gfx1100", "strix"),
    },
    findings=(None, NO_CK, UNLISTED, NO_TORCH, OLD_ROCM, NO_IMAGE),
    tables=(
        SupportTable(("torch", "rocm"), (0, 0, 3, 0)),
        SupportTable(("backend", "gpu"), (0, 1, 1, 0, 0, 2)),
        SupportTable(("rocm", "gpu"), (0, 0, 0, 0, 0, 4)),
    ),
    amd=SupportTable(("torch", "rocm", "python"), (5, 5, 0, 5)),
)


@pytest.mark.parametrize(
    ("choices", "answer", "reasons"),
    [
        ({}, Answer.WORKS, []),
        ({"gpu": "gfx942", "backend": "ck", "torch": "2.9", "rocm": "7"}, Answer.WORKS, []),
        ({"gpu": "gfx1100"}, Answer.WORKS, []),
        ({"gpu": "gfx1100", "backend": "ck"}, Answer.DOES_NOT_WORK, [NO_CK]),
        ({"gpu": "strix"}, Answer.MAY_WORK, [UNLISTED]),
        ({"gpu": "strix", "backend": "triton"}, Answer.MAY_WORK, [UNLISTED]),
        ({"gpu": "strix", "rocm": "6"}, Answer.DOES_NOT_WORK, [OLD_ROCM]),
        ({"torch": "2.5", "rocm": "7"}, Answer.DOES_NOT_WORK, [NO_TORCH]),
        ({"gpu": "strix", "torch": "2.5"}, Answer.DOES_NOT_WORK, [OLD_ROCM, NO_TORCH]),
        ({"gpu": "gfx1100", "backend": "ck", "torch": "2.5", "rocm": "7"}, Answer.DOES_NOT_WORK, [NO_TORCH, NO_CK]),
    ],
)
def test_the_best_answer_is_given_with_the_reasons_why_it_is_no_better(
    choices: Mapping[str, str], answer: Answer, reasons: list[Finding]
) -> None:
    assert TABLES.find_support(choices) == Support(answer, tuple(finding.reason for finding in reasons))


def test_a_value_that_no_wheel_has_is_answered_with_the_values_that_exist() -> None:
    support = TABLES.find_support({"torch": "2.4", "gpu": "gfx900"})
    assert support.answer is Answer.DOES_NOT_WORK
    assert support.reasons == (
        "no wheels for torch 2.4; available: 2.9, 2.5",
        "no wheels for gfx900; available: gfx942, gfx1100, strix",
    )
    without_wheels = replace(TABLES, tables=(SupportTable(("torch",), (3, 0)),))
    assert without_wheels.find_support({"torch": "2.4"}).reasons == ("no wheels for torch 2.4; available: 2.5",)


def test_ck_may_work_with_amds_torch_where_an_image_has_it() -> None:
    choices = {"torch": "2.5", "rocm": "7", "backend": "ck", "gpu": "gfx942"}
    assert TABLES.find_user_support(choices) == Support(Answer.MAY_WORK, (OTHER_BUILD,))
    without = replace(TABLES, amd=SupportTable(TABLES.amd.axes, (5, 5, 5, 5)))
    assert without.find_user_support(choices) == Support(Answer.DOES_NOT_WORK, (NO_TORCH.reason,))


def test_tables_survive_json() -> None:
    assert read_record(SupportTables, json.loads(json.dumps(TABLES.as_json()))) == TABLES


def test_an_answer_is_one_line_with_its_reasons() -> None:
    assert str(Support(Answer.WORKS)) == "works"
    assert str(Support(Answer.MAY_WORK, ("a", "b"))) == "may work: a; b"


def test_other_ways_name_an_override_only_where_owners_use_one() -> None:
    override, fallback = other_ways("gfx1031")
    assert override.startswith("at your own risk")
    assert "export HSA_OVERRIDE_GFX_VERSION=10.3.0 makes ROCm use code for gfx1030" in override
    assert other_ways("gfx1010") == (fallback,)
    assert fallback.startswith("flash-attention-amd: ")
