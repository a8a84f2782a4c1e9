"""Run a workflow on this machine: `run_workflow`."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from workflows.artifacts import Store
from workflows.definition import check, dispatch_inputs, read_workflow
from workflows.document import WorkflowError
from workflows.events import Event, github_context
from workflows.expressions import Expressions, Scope
from workflows.jobs import Level, RunContext, run_level
from workflows.results import Run, overall
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
    number = FIRST_RUN if previous is None else previous.id + 1
    folder = place.folder / f"run{number}"
    artifacts = folder / "artifacts"
    if attempt_of:
        number, artifacts = attempt_of.id, attempt_of.artifacts
        folder = artifacts.parent.with_name(f"{artifacts.parent.name}-again")
    artifacts.mkdir(parents=True, exist_ok=bool(attempt_of))
    sandbox = make_sandbox(folder / "sandbox", place.environ, place.stand_ins, place.tools)
    before = {} if previous is None else {str(previous.id): previous.artifacts}
    typed = dispatch_inputs(workflow, inputs or {}) if event.name == "workflow_dispatch" else {}
    contexts = {
        "github": github_context(event, number, workflow.name, 2 if attempt_of else 1),
        "inputs": typed,
        "vars": dict(place.variables),
    }
    evaluator, scope = place.expressions, Scope(contexts)
    store = Store(artifacts, before)
    home = place.home or folder / "home"
    home.mkdir(exist_ok=True)
    shared = RunContext(
        evaluator,
        sandbox,
        place.tree,
        home,
        folder,
        store,
        place.secrets,
        unexecuted,
        itertools.count(),
        place.last_first,
    )
    evaluator.text(workflow.content.get("run-name"), scope)
    earlier = attempt_of.jobs if attempt_of else ()
    done, needs = run_level(Level(workflow, contexts, None, earlier=earlier), shared)
    jobs = tuple(itertools.chain.from_iterable(done.values()))
    return Run(number, overall([one["result"] for one in needs.values()]), jobs, artifacts, sandbox)
