"""Runs a workflow of a tree on this machine: `run_workflow`."""

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
from workflows.jobs import Level, Shop, run_level
from workflows.results import Run, overall
from workflows.sandbox import make_sandbox

FIRST_RUN = 1001


@dataclass(frozen=True)
class Place:
    """The repository as it is set up, and the machines that it runs on."""

    tree: Path
    """The working tree; checkouts are copies of it."""
    folder: Path
    """Where runs may keep what they leave."""
    expressions: Expressions
    home: Path | None = None
    """What every machine brings in its home; it is copied for each job, links as links."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """``vars`` of the repository."""
    secrets: Mapping[str, str] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)
    """What every step finds in its environment."""
    stand_ins: Mapping[str, str] = field(default_factory=dict)
    """Programs that only record their calls, beside those of `sandbox.STAND_INS`, with shell text to run then."""
    tools: Sequence[str] = ()
    """Programs of this machine that steps may run, beside those of `sandbox.TOOLS`."""


def run_workflow(
    place: Place,
    file: str,
    event: Event,
    *,
    inputs: Mapping[str, str] | None = None,
    earlier: Run | None = None,
    unexecuted: Collection[str] = (),
) -> Run:
    """Run a workflow file on an event.

    `inputs` are those of a run by hand; `earlier` is the run whose artifacts can be taken by its id; `unexecuted` are
    paths of jobs (``cells/cell/build``) of which all expressions are evaluated and no step is run.
    Raises `WorkflowError` for what GitHub would not start, and for what this runner does not know.
    """
    workflow = read_workflow(place.tree, file)
    if workflow.trigger(event.name) is None:
        raise WorkflowError(f"{file}: does not start on {event.name}")
    check(workflow)
    number = FIRST_RUN if earlier is None else earlier.id + 1
    folder = place.folder / f"run{number}"
    artifacts = folder / "artifacts"
    artifacts.mkdir(parents=True)
    sandbox = make_sandbox(folder / "sandbox", place.environ, place.stand_ins, place.tools)
    before = {} if earlier is None else {str(earlier.id): earlier.artifacts}
    typed = dispatch_inputs(workflow, inputs or {}) if event.name == "workflow_dispatch" else {}
    contexts = {
        "github": github_context(event, number, workflow.name),
        "inputs": typed,
        "vars": dict(place.variables),
    }
    evaluator, scope = place.expressions, Scope(contexts)
    store = Store(artifacts, before)
    home = place.home or folder / "home"
    home.mkdir(exist_ok=True)
    shop = Shop(evaluator, sandbox, place.tree, home, folder, store, place.secrets, unexecuted, itertools.count())
    evaluator.text(workflow.content.get("run-name"), scope)
    group = evaluator.fill(workflow.content.get("concurrency"), scope)
    done, needs = run_level(Level(workflow, contexts, None), shop)
    jobs = tuple(itertools.chain.from_iterable(done.values()))
    named = group["group"] if isinstance(group, Mapping) else group or ""
    return Run(number, overall([one["result"] for one in needs.values()]), jobs, artifacts, sandbox, named)
