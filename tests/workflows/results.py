"""What became of a run: values to assert on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workflows.sandbox import Call, Sandbox

SUCCESS, FAILURE, SKIPPED, CANCELLED = "success", "failure", "skipped", "cancelled"
"""The results that GitHub knows."""


@dataclass(frozen=True)
class Step:
    """One step, or one step of a composite action."""

    name: str
    outcome: str
    """Before continue-on-error is applied."""
    conclusion: str
    said: str = ""
    """What it printed."""
    outputs: Mapping[str, str] = field(default_factory=dict)
    uses: str = ""
    inputs: Mapping[str, str] = field(default_factory=dict)
    """What a step that uses an action gave it."""
    saw_token: bool = False
    """Whether the job's token was in its environment, its inputs or its script."""


@dataclass(frozen=True)
class Job:
    """One job of a matrix, or the only one."""

    path: str
    """``cells/cell/build``: the ids, where a job calls another workflow; without the combination."""
    result: str
    name: str = ""
    matrix: Mapping[str, Any] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()
    called: tuple[Job, ...] = ()
    """The jobs of the workflow that it calls."""
    permissions: Mapping[str, str] = field(default_factory=dict)
    """What its token may do."""
    environment: str = ""
    concurrency: str = ""
    runner: str = ""
    timeout_minutes: float | None = None
    summary: str = ""
    error: str = ""
    """Why it failed, where that was before or outside its steps."""

    def step(self, name: str) -> Step:
        """The first step of that name, or that uses an action of that name."""
        return next(step for step in self.steps if step.name == name or step.uses.partition("@")[0] == name)

    @property
    def said(self) -> str:
        """All that its steps printed."""
        return "".join(step.said for step in self.steps) + self.error

    def all(self) -> Iterator[Job]:
        """It and the jobs it called."""
        yield self
        for job in self.called:
            yield from job.all()


@dataclass(frozen=True)
class Run:
    """A whole run of a workflow."""

    id: int
    result: str
    jobs: tuple[Job, ...]
    """Those of the workflow itself, each combination of a matrix."""
    artifacts: Path
    """A folder with a folder for each artifact."""
    sandbox: Sandbox
    concurrency: str = ""

    def all(self) -> Iterator[Job]:
        """Every job, called ones too."""
        for job in self.jobs:
            yield from job.all()

    def of(self, path: str) -> list[Job]:
        """The jobs of a path, such as ``cells/cell/build``: one for each combination."""
        return [job for job in self.all() if job.path == path]

    def job(self, path: str) -> Job:
        """The only job of a path."""
        (found,) = self.of(path)
        return found

    def results(self) -> dict[str, list[str]]:
        """What the jobs of each path ended with."""
        found: dict[str, list[str]] = {}
        for job in self.all():
            found.setdefault(job.path, []).append(job.result)
        return found

    def calls(self, program: str) -> list[Call]:
        """How a stand-in was called."""
        return self.sandbox.calls(program)

    def artifact_names(self) -> list[str]:
        """The names of what was uploaded."""
        return sorted(path.name for path in self.artifacts.iterdir())

    def said(self) -> str:
        """All that all jobs printed, each under its path: for the message of a test that fails."""
        return "\n".join(f"== {job.path} {dict(job.matrix)} {job.result}\n{job.said}" for job in self.all())


def overall(results: list[str]) -> str:
    """The result of several jobs together."""
    for one in (FAILURE, CANCELLED, SUCCESS):
        if one in results:
            return one
    return SKIPPED
