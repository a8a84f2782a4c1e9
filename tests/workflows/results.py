"""Results of a run, for tests to assert on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workflows.sandbox import Call, Sandbox

SUCCESS, FAILURE, SKIPPED, CANCELLED = "success", "failure", "skipped", "cancelled"
"""The results of GitHub."""


@dataclass(frozen=True)
class Step:
    name: str
    outcome: str
    output: str = ""
    """Text on stdout and stderr."""
    outputs: Mapping[str, str] = field(default_factory=dict)
    uses: str = ""
    inputs: Mapping[str, str] = field(default_factory=dict)
    """Inputs for the action that the step uses."""
    saw_token: bool = False
    """Whether the job's token was in the environment or inputs."""


@dataclass(frozen=True)
class Job:
    """One combination of a job."""

    path: str
    """Job ids through called workflows, such as ``cells/build``, without the combination."""
    result: str
    name: str = ""
    matrix: Mapping[str, Any] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()
    called: tuple[Job, ...] = ()
    """Jobs of the called workflow."""
    permissions: Mapping[str, str] = field(default_factory=dict)
    """Permissions of the token."""
    runner: str = ""
    summary: str = ""
    error: str = ""
    """Error before or outside the steps."""

    def step(self, name: str) -> Step:
        """Return the first step with this name or action."""
        return next(step for step in self.steps if step.name == name or step.uses.partition("@")[0] == name)

    @property
    def output(self) -> str:
        return "".join(step.output for step in self.steps) + self.error

    def all(self) -> Iterator[Job]:
        """Yield the job and the jobs of called workflows."""
        yield self
        for job in self.called:
            yield from job.all()


@dataclass(frozen=True)
class Run:
    id: int
    result: str
    jobs: tuple[Job, ...]
    """Jobs of the workflow itself, one for each combination."""
    artifacts: Path
    """Folder with a subfolder for each artifact."""
    sandbox: Sandbox
    attempt: int

    def all(self) -> Iterator[Job]:
        """Yield every job, including those of called workflows."""
        for job in self.jobs:
            yield from job.all()

    def jobs_at(self, path: str) -> list[Job]:
        """Return every combination of a path, such as ``cells/build``."""
        return [job for job in self.all() if job.path == path]

    def job(self, path: str) -> Job:
        (found,) = self.jobs_at(path)
        return found

    def results(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for job in self.all():
            found.setdefault(job.path, []).append(job.result)
        return found

    def calls(self, program: str) -> list[Call]:
        return self.sandbox.calls(program)

    def artifact_names(self) -> list[str]:
        return sorted(path.name for path in self.artifacts.iterdir())

    def output(self) -> str:
        return "\n".join(f"== {job.path} {dict(job.matrix)} {job.result}\n{job.output}" for job in self.all())


def overall(results: list[str]) -> str:
    """Combine the results of several jobs."""
    for one in (FAILURE, CANCELLED, SUCCESS):
        if one in results:
            return one
    return SKIPPED
