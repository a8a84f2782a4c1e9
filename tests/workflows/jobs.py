"""The jobs of a workflow, in order: which run, with what, and what they leave to those that need them."""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workflows.artifacts import Store
from workflows.definition import Workflow, ancestors, call_inputs, in_order
from workflows.document import WorkflowError, as_list
from workflows.expressions import STATUSES, ExpressionError, Expressions, Scope, Value, as_text
from workflows.machine import Frame, Machine
from workflows.matrix import MatrixError, expand
from workflows.permissions import granted
from workflows.results import CANCELLED, FAILURE, SKIPPED, SUCCESS, Job, overall
from workflows.sandbox import Sandbox

OUTPUT_BYTES = 1024**2
"""What the outputs of a job may take, as UTF-16 (GitHub's docs, limits)."""


@dataclass(frozen=True)
class Shop:
    """What all jobs of a run are given."""

    expressions: Expressions
    sandbox: Sandbox
    tree: Path
    home: Path
    folder: Path
    store: Store
    secrets: Mapping[str, str]
    unexecuted: Container[str]
    """Paths of jobs whose steps are not run: their expressions are evaluated, and they succeed."""
    counter: Iterator[int]


@dataclass(frozen=True)
class Level:
    """One workflow of a run: the one that was started, or one that is called."""

    workflow: Workflow
    contexts: Mapping[str, Value]
    """github, inputs and vars."""
    most: Mapping[str, str] | None
    prefix: str = ""


class JobError(Exception):
    """Why a job fails before its steps."""


def run_level(level: Level, shop: Shop) -> tuple[dict[str, list[Job]], dict[str, Any]]:
    """Run the jobs of a workflow; each with all its combinations, and the ``needs`` context at the end."""
    done: dict[str, list[Job]] = {}
    needs: dict[str, Any] = {}
    for name in in_order(level.workflow):
        done[name] = list(_combinations(name, level, shop, needs))
        outputs: dict[str, str] = {}
        for job in done[name]:
            outputs |= {key: value for key, value in job.outputs.items() if value or key not in outputs}
        needs[name] = {"result": overall([job.result for job in done[name]]), "outputs": outputs}
    return done, needs


def call_outputs(level: Level, needs: Mapping[str, Any], expressions: Expressions) -> dict[str, str]:
    """What a called workflow gives its caller."""
    declared = (level.workflow.trigger("workflow_call") or {}).get("outputs") or {}
    scope = Scope({**level.contexts, "jobs": needs})
    return {name: expressions.text(about["value"], scope) for name, about in declared.items()}


def _combinations(name: str, level: Level, shop: Shop, needs: Mapping[str, Any]) -> Iterator[Job]:
    """The jobs of one id."""
    job, path = level.workflow.jobs[name], f"{level.prefix}{name}"
    wanted = {one: needs[one] for one in as_list(job.get("needs"))}
    contexts = {**level.contexts, "needs": wanted}
    try:
        if not shop.expressions.condition(job.get("if"), Scope(contexts, _statuses(name, level, needs))):
            yield Job(path, SKIPPED)
            return
        strategy = shop.expressions.fill(job.get("strategy") or {}, Scope(contexts))
        combinations = expand(strategy["matrix"]) if "matrix" in strategy else [{}]
    except (ExpressionError, MatrixError) as error:
        yield Job(path, FAILURE, error=f"{path}: {error}")
        return
    stopped = False
    for index, matrix in enumerate(combinations):
        if stopped:
            yield Job(path, CANCELLED, matrix=matrix)
            continue
        about = {"job-index": index, "job-total": len(combinations), "fail-fast": strategy.get("fail-fast", True)}
        ended = _one(name, level, shop, {**contexts, "matrix": matrix, "strategy": about})
        stopped = ended.result == FAILURE and about["fail-fast"] is not False
        yield ended


def _statuses(name: str, level: Level, needs: Mapping[str, Any]) -> dict[str, bool]:
    """success() and failure() ask all that a job depends on, not only what it names: one skipped far up counts."""
    results = [needs[one]["result"] for one in ancestors(level.workflow, name)]
    values = (all(one == SUCCESS for one in results), FAILURE in results, True, False)
    return dict(zip(STATUSES, values, strict=True))


def _one(name: str, level: Level, shop: Shop, contexts: Mapping[str, Value]) -> Job:
    """One combination. What GitHub would refuse of values that are only known now fails the job."""
    job, path = level.workflow.jobs[name], f"{level.prefix}{name}"
    scope = Scope(contexts)
    permissions = granted(level.workflow.content, job, level.most, path)
    try:
        fill = shop.expressions.fill
        told = Job(
            path,
            SUCCESS,
            name=shop.expressions.text(job.get("name", name), scope),
            matrix=contexts["matrix"],
            permissions=permissions,
            environment=_named(fill(job.get("environment"), scope), "name"),
            concurrency=_named(fill(job.get("concurrency"), scope), "group"),
        )
        called = level.workflow.called(name)
        if called is not None:
            return _call(called, told, level, shop, contexts)
        return _run(job, told, level, shop, contexts)
    except (ExpressionError, JobError, WorkflowInputError) as error:
        return Job(path, FAILURE, matrix=contexts["matrix"], permissions=permissions, error=f"{path}: {error}")


class WorkflowInputError(Exception):
    """A value of the wrong type for an input of a called workflow."""


def _call(called: Workflow, told: Job, level: Level, shop: Shop, contexts: Mapping[str, Value]) -> Job:
    job = level.workflow.jobs[told.path.removeprefix(level.prefix)]
    given = shop.expressions.fill(job.get("with") or {}, Scope(contexts))
    declared = (called.trigger("workflow_call") or {}).get("inputs") or {}
    own = {name: contexts[name] for name in ("github", "vars")}
    written = {name: about["default"] for name, about in declared.items() if "default" in about}
    try:
        inputs = call_inputs(called, given, shop.expressions.fill(written, Scope(own)))
    except WorkflowError as error:
        raise WorkflowInputError(str(error)) from None
    inner = Level(called, {**own, "inputs": inputs}, told.permissions, f"{told.path}/")
    done, needs = run_level(inner, shop)
    jobs = tuple(itertools.chain.from_iterable(done.values()))
    outputs = call_outputs(inner, needs, shop.expressions)
    return _with(told, result=overall([one["result"] for one in needs.values()]), called=jobs, outputs=outputs)


def _run(job: Mapping[str, Any], told: Job, level: Level, shop: Shop, contexts: Mapping[str, Value]) -> Job:
    folder = shop.folder / f"job{next(shop.counter)}"
    token = f"token-of-{folder.name}" if told.permissions else ""
    machine = Machine(
        shop.expressions,
        shop.sandbox,
        shop.tree,
        shop.home,
        folder,
        shop.store,
        told.permissions,
        token,
        told.path not in shop.unexecuted,
    )
    with machine:
        frame = _frame(job, told, level, shop, contexts, machine)
        machine.run(job["steps"], frame)
        last = Scope({**frame.contexts, "env": {**frame.environ, **machine.environ}, "steps": frame.steps})
        outputs = {name: shop.expressions.text(value, last) for name, value in (job.get("outputs") or {}).items()}
    _check_size(outputs)
    fill, scope = shop.expressions.fill, Scope(contexts)
    tolerated = frame.failed and bool(fill(job.get("continue-on-error", False), scope))
    return _with(
        told,
        result=FAILURE if frame.failed and not tolerated else SUCCESS,
        outputs=outputs,
        steps=tuple(machine.done),
        runner=as_text(fill(job["runs-on"], scope)),
        timeout_minutes=fill(job.get("timeout-minutes"), scope),
        summary=machine.summary,
    )


def _frame(
    job: Mapping[str, Any], told: Job, level: Level, shop: Shop, contexts: Mapping[str, Value], machine: Machine
) -> Frame:
    """What the steps of a job can see."""
    own = {"job": told.path.rpartition("/")[2], "workspace": str(machine.workspace), "token": machine.token}
    runner = {"os": "Linux", "arch": "X64", "temp": str(machine.temp), "environment": "github-hosted"}
    secrets = {**({} if level.prefix else shop.secrets), "GITHUB_TOKEN": machine.token}
    known = {**contexts, "github": {**contexts["github"], **own}, "secrets": secrets}
    written = [*(level.workflow.content.get("env") or {}).items(), *(job.get("env") or {}).items()]
    environ = {name: shop.expressions.text(value, Scope(known)) for name, value in written}
    known |= {"runner": runner, "job": {"status": SUCCESS}}
    defaults = {**(level.workflow.content.get("defaults") or {}), **(job.get("defaults") or {})}
    return Frame(known, environ, shop.expressions.fill(defaults, Scope({**known, "env": environ})))


def _check_size(outputs: Mapping[str, str]) -> None:
    taken = sum(len(name.encode("utf-16-le")) + len(value.encode("utf-16-le")) for name, value in outputs.items())
    if taken > OUTPUT_BYTES:
        raise JobError(f"its outputs take {taken} bytes as UTF-16, and {OUTPUT_BYTES} is the most")


def _with(job: Job, **changes: Any) -> Job:
    return Job(**{**job.__dict__, **changes})


def _named(value: Value, key: str) -> str:
    """``environment`` and ``concurrency`` are a name, or a mapping with one."""
    return as_text(value[key] if isinstance(value, Mapping) else value)
