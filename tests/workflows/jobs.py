"""Run the jobs of a workflow in order, with their conditions, matrices, inputs and outputs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from workflows.definition import Workflow, ancestors, call_inputs, grant_permissions, sort_jobs
from workflows.document import WorkflowError, as_list
from workflows.expressions import STATUSES, ExpressionError, Expressions, Scope, Value, as_text
from workflows.machine import Frame, Machine, RunContext
from workflows.results import CANCELLED, FAILURE, SKIPPED, SUCCESS, Job, overall

OUTPUT_BYTES = 1024**2
"""Limit of a job's outputs in bytes of UTF-16 (GitHub's docs, limits)."""


@dataclass(frozen=True)
class Level:
    """One workflow of a run: the started one, or a called one."""

    workflow: Workflow
    contexts: Mapping[str, Value]
    """github, inputs and vars."""
    permission_limit: Mapping[str, str] | None
    prefix: str = ""
    earlier: Sequence[Job] = ()
    """The jobs of an earlier attempt: those that succeeded are not run again, unless they need one that is."""


class JobError(Exception):
    """An error that fails a job before its steps."""


def run_level(level: Level, shared: RunContext) -> tuple[dict[str, list[Job]], dict[str, Any]]:
    """Run the jobs of a workflow. Returns every combination of each job, and the final ``needs`` context."""
    done: dict[str, list[Job]] = {}
    needs: dict[str, Any] = {}
    for name in sort_jobs(level.workflow, shared.last_first):
        earlier = [job for job in level.earlier if job.path == f"{level.prefix}{name}"]
        needed = [job for one in as_list(level.workflow.jobs[name].get("needs")) for job in done[one]]
        if any(job.result != SKIPPED and job not in level.earlier for job in needed):
            earlier = []
        done[name] = list(_run_combinations(name, replace(level, earlier=earlier), shared, needs))
        outputs: dict[str, str] = {}
        for job in done[name]:
            outputs |= {key: value for key, value in job.outputs.items() if value or key not in outputs}
        needs[name] = {"result": overall([job.result for job in done[name]]), "outputs": outputs}
    return done, needs


def call_outputs(level: Level, needs: Mapping[str, Any], expressions: Expressions) -> dict[str, str]:
    declared = (level.workflow.trigger("workflow_call") or {}).get("outputs") or {}
    scope = Scope({**level.contexts, "jobs": needs})
    return {name: expressions.text(about["value"], scope) for name, about in declared.items()}


def _run_combinations(name: str, level: Level, shared: RunContext, needs: Mapping[str, Any]) -> Iterator[Job]:
    """Run every combination of one job id."""
    job, path = level.workflow.jobs[name], f"{level.prefix}{name}"
    wanted = {one: needs[one] for one in as_list(job.get("needs"))}
    contexts = {**level.contexts, "needs": wanted}
    try:
        if not shared.expressions.condition(job.get("if"), Scope(contexts, _statuses(name, level, needs))):
            yield Job(path, SKIPPED)
            return
        strategy = shared.expressions.fill(job.get("strategy") or {}, Scope(contexts))
        combinations = expand_matrix(strategy["matrix"]) if "matrix" in strategy else [{}]
    except (ExpressionError, MatrixError) as error:
        yield Job(path, FAILURE, error=f"{path}: {error}")
        return
    stopped = False
    for index, matrix in enumerate(combinations):
        if stopped:
            yield Job(path, CANCELLED, matrix=matrix)
            continue
        about = {"job-index": index, "job-total": len(combinations), "fail-fast": strategy.get("fail-fast", True)}
        before = next((job for job in level.earlier if job.matrix == matrix), None)
        if before and before.result == SUCCESS:
            yield before
            continue
        inner = replace(level, earlier=before.called if before else ())
        ended = _run_combination(name, inner, shared, {**contexts, "matrix": matrix, "strategy": about})
        stopped = ended.result == FAILURE and about["fail-fast"] is not False
        yield ended


def _statuses(name: str, level: Level, needs: Mapping[str, Any]) -> dict[str, bool]:
    """Return the values of the status functions, which check indirect needs too."""
    results = [needs[one]["result"] for one in ancestors(level.workflow, name)]
    values = (all(one == SUCCESS for one in results), FAILURE in results, True, False)
    return dict(zip(STATUSES, values, strict=True))


def _run_combination(name: str, level: Level, shared: RunContext, contexts: Mapping[str, Value]) -> Job:
    """Run one combination. A value that GitHub rejects only at run time fails the job."""
    job, path = level.workflow.jobs[name], f"{level.prefix}{name}"
    scope = Scope(contexts)
    permissions = grant_permissions(level.workflow.content, job, level.permission_limit, path)
    try:
        base = Job(
            path,
            SUCCESS,
            name=shared.expressions.text(job.get("name", name), scope),
            matrix=contexts["matrix"],
            permissions=permissions,
        )
        called = level.workflow.called(name)
        if called is not None:
            return _call(called, base, level, shared, contexts)
        return _run(job, base, level, shared, contexts)
    except (ExpressionError, JobError) as error:
        return Job(path, FAILURE, matrix=contexts["matrix"], permissions=permissions, error=f"{path}: {error}")


def _call(called: Workflow, base: Job, level: Level, shared: RunContext, contexts: Mapping[str, Value]) -> Job:
    job = level.workflow.jobs[base.path.removeprefix(level.prefix)]
    given = shared.expressions.fill(job.get("with") or {}, Scope(contexts))
    declared = (called.trigger("workflow_call") or {}).get("inputs") or {}
    own = {name: contexts[name] for name in ("github", "vars")}
    written = {name: about["default"] for name, about in declared.items() if "default" in about}
    try:
        inputs = call_inputs(called, given, shared.expressions.fill(written, Scope(own)))
    except WorkflowError as error:
        raise JobError(str(error)) from None
    inner = Level(called, {**own, "inputs": inputs}, base.permissions, f"{base.path}/", level.earlier)
    done, needs = run_level(inner, shared)
    jobs = tuple(itertools.chain.from_iterable(done.values()))
    outputs = call_outputs(inner, needs, shared.expressions)
    return replace(base, result=overall([one["result"] for one in needs.values()]), called=jobs, outputs=outputs)


def _run(job: Mapping[str, Any], base: Job, level: Level, shared: RunContext, contexts: Mapping[str, Value]) -> Job:
    folder = shared.folder / f"job{next(shared.counter)}"
    token = f"token-of-{folder.name}" if base.permissions else ""
    machine = Machine(shared, folder, base.permissions, token, base.path not in shared.unexecuted)
    with machine:
        frame = _frame(job, base, level, shared, contexts, machine)
        machine.run(job["steps"], frame)
        last = Scope({**frame.contexts, "env": dict(frame.environ), "steps": frame.steps})
        outputs = {name: shared.expressions.text(value, last) for name, value in (job.get("outputs") or {}).items()}
    _check_size(outputs)
    fill, scope = shared.expressions.fill, Scope(contexts)
    return replace(
        base,
        result=FAILURE if frame.failed else SUCCESS,
        outputs=outputs,
        steps=tuple(machine.done),
        runner=as_text(fill(job["runs-on"], scope)),
        summary=machine.summary,
    )


def _frame(
    job: Mapping[str, Any], base: Job, level: Level, shared: RunContext, contexts: Mapping[str, Value], machine: Machine
) -> Frame:
    own = {"job": base.path.rpartition("/")[2], "workspace": str(machine.workspace), "token": machine.token}
    runner = {"os": "Linux", "arch": "X64", "temp": str(machine.temp), "environment": "github-hosted"}
    secrets = {**({} if level.prefix else shared.secrets), "GITHUB_TOKEN": machine.token}
    known = {**contexts, "github": {**contexts["github"], **own}, "secrets": secrets}
    written = [*(level.workflow.content.get("env") or {}).items(), *(job.get("env") or {}).items()]
    environ = {name: shared.expressions.text(value, Scope(known)) for name, value in written}
    known |= {"runner": runner, "job": {"status": SUCCESS}}
    return Frame(known, environ)


def _check_size(outputs: Mapping[str, str]) -> None:
    size = sum(len(name.encode("utf-16-le")) + len(value.encode("utf-16-le")) for name, value in outputs.items())
    if size > OUTPUT_BYTES:
        raise JobError(f"its outputs take {size} bytes of UTF-16, the limit is {OUTPUT_BYTES}")


LIMIT = 256
"""Limit of combinations; GitHub's error is "exceeds the maximum of 256 configurations"."""


class MatrixError(Exception):
    """A matrix that GitHub rejects, or that our workflows do not have."""


def expand_matrix(matrix: Any) -> list[dict[str, Any]]:
    """Return the entries of ``include``, which is all that a matrix of our workflows has.

    Raises `MatrixError` for none, too many, or another matrix.
    """
    if not isinstance(matrix, Mapping) or set(matrix) != {"include"}:
        raise MatrixError(f"a matrix of anything but include is not supported: {matrix!r}")
    entries = matrix["include"]
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise MatrixError(f"include of a matrix is a list of mappings, not {entries!r}")
    if not entries:
        raise MatrixError("the matrix must define at least one vector")
    if len(entries) > LIMIT:
        raise MatrixError(f"{len(entries)} configurations exceed the maximum of {LIMIT}")
    return entries
