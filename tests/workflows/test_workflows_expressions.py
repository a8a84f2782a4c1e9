"""Expressions: GitHub's evaluator, and the runner's additions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import yaml

from wheelfactory.core.files import ROOT
from workflows.expressions import STATUSES, ExpressionError, Expressions, Scope


def scope(*, failed: bool = False, **contexts: Any) -> Scope:
    return Scope(contexts, dict(zip(STATUSES, (not failed, failed, True, False), strict=True)))


def test_expressions_in_text(evaluator: Expressions) -> None:
    for text, value in (
        ("${{ inputs.flag }}", True),
        ("a ${{ inputs.flag }} b", "a true b"),
        ("${{ inputs.nothing }}", None),
        ("[${{ inputs.nothing }}]", "[]"),
        ("${{ fromJSON('[1, \"2.50\"]')[1] }}", "2.50"),
        ("${{ '}}' }}", "}}"),
        ("${{ 2.10 }}", 2.1),
    ):
        assert evaluator.fill(text, scope(inputs={"flag": True})) == value
    for text in ("${{ other.a }}", "${{ inputs.", "${{ fromJSON('') }}"):
        with pytest.raises(ExpressionError):
            evaluator.fill(text, scope(inputs={}))


def test_a_condition_without_a_status_function_needs_success_and_text_around_one_is_an_error(
    evaluator: Expressions,
) -> None:
    for condition, failed, runs in (
        (None, False, True),
        (None, True, False),
        ("inputs.a == 'x'", False, True),
        ("${{ inputs.a == 'x' }}", True, False),
        ("always()", True, True),
        ("failure()", True, True),
        ("!cancelled() && inputs.a == 'x'", True, True),
        ("inputs.a != 'always()'", True, False),
        (True, False, True),
        (False, False, False),
    ):
        assert evaluator.condition(condition, scope(failed=failed, inputs={"a": "x"})) is runs
    with pytest.raises(ExpressionError, match="always true"):
        evaluator.condition("${{ inputs.a }} == 'y'", scope(inputs={"a": "x"}))


TIMED_OUT = Scope({}, dict(zip(STATUSES, (False, False, True, True), strict=True)))
"""After GitHub cancelled a job at its limit (docs/reference/workflows.md)."""


def our_jobs() -> Mapping[str, Any]:
    """The jobs of our workflows."""
    loaded = {path.stem: yaml.safe_load(path.read_text()) for path in (ROOT / ".github/workflows").glob("*.yml")}
    return {f"{name} {job}": content for name, file in loaded.items() for job, content in file["jobs"].items()}


def test_a_job_at_its_limit_uploads_what_it_made_and_its_logs(evaluator: Expressions) -> None:
    for title, job in our_jobs().items():
        uploads = [step for step in job.get("steps", ()) if step.get("uses") == "./.github/actions/seal"]
        if job.get("timeout-minutes") not in range(60):  # the others make nothing that a part of is worth keeping
            assert [step for step in uploads if not evaluator.condition(step.get("if"), TIMED_OUT)] == [], title


def test_every_result_of_the_weekly_check_but_success_and_skipped_is_reported(evaluator: Expressions) -> None:
    jobs = our_jobs()
    for result in ("failure", "cancelled", "success", "skipped"):
        needs = replace(TIMED_OUT, contexts={"needs": {"check": {"result": result}}})
        assert evaluator.condition(jobs["check report"]["if"], needs) is (result in ("failure", "cancelled"))
    assert evaluator.condition(jobs["build reconcile"]["if"], replace(TIMED_OUT, contexts={"inputs": {}}))
