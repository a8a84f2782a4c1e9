"""Run a workflow on this machine: `run_workflow`."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

from workflows.artifacts import Store
from workflows.definition import check, dispatch_inputs, read_workflow
from workflows.document import WorkflowError
from workflows.events import Event, github_context
from workflows.expressions import Expressions, Scope
from workflows.jobs import Level, run_level
from workflows.machine import RunContext
from workflows.results import FAILURE, Job, Run, overall
from workflows.sandbox import make_sandbox

FIRST_RUN = 1001


@dataclass(frozen=True)
class RunnerSetup:
    """A repository with its settings, and the machines of its runs."""

    tree: Path
    """Working tree; every checkout copies it."""
    folder: Path
    """Folder for the files of runs."""
    expressions: Expressions
    home: Path | None = None
    """Initial home directory of every machine; copied for each job, with symbolic links kept."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Variables (``vars``) of the repository."""
    secrets: Mapping[str, str] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)
    """Environment of every step."""
    stand_ins: Mapping[str, str] = field(default_factory=dict)
    """Additional fake programs, with the shell text that each runs after recording its call."""
    last_first: bool = False
    """Whether jobs run from the end of a file, as far as ``needs`` permits: GitHub starts them in any order."""
    tools: Sequence[str] = ()
    """Programs of this machine that steps may run, in addition to `sandbox.TOOLS`."""


def run_workflow(
    place: RunnerSetup,
    file: str,
    event: Event,
    *,
    inputs: Mapping[str, str] | None = None,
    previous: Run | None = None,
    attempt_of: Run | None = None,
    unexecuted: Collection[str] = (),
) -> Run:
    """Run a workflow file on an event.

    `inputs` are for a manual run; `previous` is a run whose artifacts can be downloaded by its id; `attempt_of` is a
    run whose failed jobs run again, with the jobs that need them; `unexecuted` are the paths of jobs (``cells/build``)
    whose expressions are evaluated without running steps. Raises `WorkflowError` for a workflow that GitHub would not
    start or that this runner does not support.
    """
    workflow = read_workflow(place.tree, file)
    if workflow.trigger(event.name) is None:
        raise WorkflowError(f"{file}: does not start on {event.name}")
    check(workflow)
    number, attempt = FIRST_RUN if previous is None else previous.id + 1, 1
    if attempt_of:
        number, attempt = attempt_of.id, attempt_of.attempt + 1
    folder = place.folder / f"run{number}-{attempt}"
    artifacts = attempt_of.artifacts if attempt_of else folder / "artifacts"
    artifacts.mkdir(parents=True, exist_ok=bool(attempt_of))
    sandbox = make_sandbox(folder / "sandbox", place.environ, place.stand_ins, place.tools)
    before = {} if previous is None else {str(previous.id): previous.artifacts}
    typed = dispatch_inputs(workflow, inputs or {}) if event.name == "workflow_dispatch" else {}
    github = github_context(event, number, workflow.name, attempt)
    contexts = {"github": github, "inputs": typed, "vars": dict(place.variables)}
    evaluator, scope = place.expressions, Scope(contexts)
    store = Store(artifacts, before)
    home = place.home or folder / "home"
    home.mkdir(exist_ok=True)
    more = (place.secrets, unexecuted, itertools.count(), place.last_first)
    shared = RunContext(evaluator, sandbox, place.tree, home, folder, store, *more)
    evaluator.text(workflow.content.get("run-name"), scope)
    earlier = attempt_of.jobs if attempt_of else ()
    done, needs = run_level(Level(workflow, contexts, None, earlier=earlier), shared)
    jobs = tuple(itertools.chain.from_iterable(done.values()))
    return Run(number, overall([one["result"] for one in needs.values()]), jobs, artifacts, sandbox, attempt)


def ended_after(run: Run, place: RunnerSetup, jobs: Collection[str], artifacts: Collection[str]) -> Run:
    """The same run at a place where it ended after the jobs at these paths, with a copy of these artifacts only.

    As `attempt_of`, so that several tests go on after jobs that ran once.
    """
    folder = place.folder / "earlier"
    for path in run.artifacts.iterdir():
        if any(fnmatchcase(path.name, pattern) for pattern in artifacts):
            shutil.copytree(path, folder / path.name)
    return replace(run, jobs=_keep(run.jobs, jobs), artifacts=folder)


def _keep(jobs: Iterable[Job], paths: Collection[str]) -> tuple[Job, ...]:
    called = (replace(job, result=FAILURE, called=_keep(job.called, paths)) if job.called else job for job in jobs)
    return tuple(job for job in called if job.called or job.path in paths)
