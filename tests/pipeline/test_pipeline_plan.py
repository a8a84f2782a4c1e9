"""The plan file: what `ci jobs` writes is what later jobs read, and anything else is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from wheelfactory.core.errors import InputError
from wheelfactory.pipeline.jobs import CellJob, SetJobs, WorkflowJobs, output_lines

PLAN = WorkflowJobs(
    cells=(CellJob(id="fa2.8.3-rocm6.4-torch2.10-cp311-ck", group="0", kernel_set="set"),),
    kernel_sets=(SetJobs(id="set", archive_name="kernels-set-0", shards=("1/2", "2/2")),),
)


def test_a_plan_that_was_written_is_read_back(tmp_path: Path) -> None:
    PLAN.write(tmp_path / "plan.json")
    assert WorkflowJobs.read(tmp_path / "plan.json") == PLAN


def test_a_plan_that_is_missing_is_an_error_that_says_what_writes_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read the plan: .*plan\.json \(No such file") as caught:
        WorkflowJobs.read(tmp_path / "plan.json")
    assert "wheelfactory ci jobs" in caught.value.hint


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"cells":[{"id":2.10,"group":"0"}],"kernel_sets":[]}', '{"cells":[]}']
)
def test_a_file_that_is_no_plan_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(InputError, match=r"not a plan: .*plan\.json: "):
        WorkflowJobs.read(tmp_path / "plan.json")


def test_outputs_are_lines_for_a_step_with_booleans_as_expressions_spell_them() -> None:
    assert output_lines({"count": 3, "later": True, "cells": '{"include":[]}'}) == [
        "count=3",
        "later=true",
        'cells={"include":[]}',
    ]
