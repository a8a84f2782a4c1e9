"""Project rules for workflows and composite actions that no checker has."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from workflows.checkers import Finding, action_files, workflow_files
from workflows.document import as_list, read_document

RELEASE_WRITERS = {
    "_build_rocm.yml": {"publish"},
    "_publish.yml": {"stage", "publish"},
    "build.yml": {"collect", "publish"},
    "refresh.yml": {"refresh"},
}
"""File -> the only jobs that may have contents: write, because they publish or open a pull request."""

BUILDS = re.compile(
    r"\./factory\s+(run|build|kernels)\b(?!.*--(merge|upload|download))|build_rocm\.sh|\b(docker|podman)\b|setup\.py"
)
"""Commands that run third-party code: flash-attn's sources, images, compilers."""

_PINNED = re.compile(r"uses:\s*(?P<action>[\w.-]+/[\w./-]+)@[0-9a-f]{40} # v\d+\.\d+\.\d+(\s|$)")
_USES = re.compile(r"^\s*(?:-\s+)?uses:\s*(?P<uses>\S+)")
_FORBIDDEN_EVENTS = ("pull_request_target", "workflow_run")


@dataclass(frozen=True)
class WorkflowFile:
    """A workflow or composite action: its text and its parsed content."""

    file: str
    text: str
    content: Mapping[str, Any]

    @property
    def name(self) -> str:
        """File name without the folder."""
        return Path(self.file).name

    @property
    def is_workflow(self) -> bool:
        """Whether it is a workflow, not a composite action."""
        return "runs" not in self.content

    def jobs(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield the jobs by id; an action has none."""
        yield from self.content.get("jobs", {}).items()

    def steps(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield the steps, each with the id of its job."""
        for name, job in (("", self.content.get("runs", {})), *self.jobs()):
            for step in job.get("steps", []):
                yield name, step


Rule: TypeAlias = Callable[[WorkflowFile], Iterator[str]]


def no_expression_in_a_script(file: WorkflowFile) -> Iterator[str]:
    """An expression would put text of a stranger into the script; it belongs in ``env``."""
    for _, step in file.steps():
        if "${{" in str(step.get("run", "")):
            yield f"an expression in a script: {step['run'].strip()}"


def one_command_a_step(file: WorkflowFile) -> Iterator[str]:
    """Logic belongs in Python, where it is tested."""
    for _, step in file.steps():
        script = str(step.get("run", "")).replace("\\\n", " ").strip()
        words = list(shlex.shlex(script, posix=True, punctuation_chars=True)) if "\n" not in script else ["\n"]
        if {"\n", ";", "&&"} & set(words):
            yield f"more than one command: {script}"


def no_permissions_at_the_top(file: WorkflowFile) -> Iterator[str]:
    """Each job requests the permissions it needs."""
    if file.is_workflow and file.content.get("permissions") != {}:
        yield "permissions: {} is missing at the top"


def only_these_jobs_write_releases(file: WorkflowFile) -> Iterator[str]:
    """No other job can change a release."""
    for name, job in file.jobs():
        permissions = job.get("permissions", {})
        may = permissions == "write-all" or (isinstance(permissions, dict) and permissions.get("contents") == "write")
        if may and name not in RELEASE_WRITERS.get(file.name, set()):
            yield f"{name}: this job must not have contents: write"


def privileged_jobs_build_nothing(file: WorkflowFile) -> Iterator[str]:
    """Third-party code must not see a write token or a secret."""
    for name, step in file.steps():
        job = file.content.get("jobs", {}).get(name, {})
        if _is_privileged(job) and BUILDS.search(str(step.get("run", ""))):
            yield f"{name}: builds with a write token or a secret: {step['run'].strip()}"


def privileged_jobs_restore_no_cache(file: WorkflowFile) -> Iterator[str]:
    """Any job can write to a cache, so its content is not trusted."""
    for name, step in file.steps():
        job = file.content.get("jobs", {}).get(name, {})
        cached = str(step.get("uses", "")).startswith("actions/cache") or "cache" in step.get("with", {})
        if _is_privileged(job) and cached:
            yield f"{name}: restores a cache with a write token or a secret"


def checkouts_keep_no_token(file: WorkflowFile) -> Iterator[str]:
    """Otherwise every later step can read the token from the checkout."""
    for name, step in file.steps():
        is_checkout = str(step.get("uses", "")).startswith("actions/checkout@")
        if is_checkout and step.get("with", {}).get("persist-credentials") is not False:
            yield f"{name}: a checkout without persist-credentials: false"


def every_job_has_a_timeout(file: WorkflowFile) -> Iterator[str]:
    """GitHub's default is six hours."""
    for name, job in file.jobs():
        if "steps" in job and "timeout-minutes" not in job:
            yield f"{name}: timeout-minutes is missing"


def no_privileged_event_of_strangers(file: WorkflowFile) -> Iterator[str]:
    """Both events run with this repository's secrets on a stranger's code."""
    on = file.content.get("on", {})
    for event in _FORBIDDEN_EVENTS:
        if event in (on if isinstance(on, dict) else as_list(on)):
            yield f"starts on {event}"


def everything_has_a_name(file: WorkflowFile) -> Iterator[str]:
    """GitHub displays the names."""
    if "name" not in file.content:
        yield "the file has no name"
    for name, job in file.jobs():
        if "name" not in job:
            yield f"{name}: the job has no name"
    for name, step in file.steps():
        if "run" in step and "name" not in step:
            yield f"{name}: a step has no name: {step['run'].strip()}"


def a_failure_cancels_no_other_cell(file: WorkflowFile) -> Iterator[str]:
    """GitHub's default cancels the rest of a matrix."""
    for name, job in file.jobs():
        strategy = job.get("strategy", {})
        if "matrix" in strategy and strategy.get("fail-fast") is not False:
            yield f"{name}: fail-fast: false is missing"


def no_host_gpu(file: WorkflowFile) -> Iterator[str]:
    """Hosted runners have no GPU, and a container that asks for one does not start."""
    if "/dev/kfd" in file.text:
        yield "names /dev/kfd"


def actions_by_commit(file: WorkflowFile) -> Iterator[str]:
    """A tag can move; the version comment is for readers and dependabot."""
    for line in file.text.splitlines():
        uses = _USES.match(line)
        if uses and not uses["uses"].startswith("./") and not _PINNED.search(line):
            yield f"not pinned to a commit with a version comment: {line.strip()}"


RULES: Mapping[str, Rule] = {
    rule.__name__.replace("_", " "): rule
    for rule in (
        no_expression_in_a_script,
        one_command_a_step,
        no_permissions_at_the_top,
        only_these_jobs_write_releases,
        privileged_jobs_build_nothing,
        privileged_jobs_restore_no_cache,
        checkouts_keep_no_token,
        every_job_has_a_timeout,
        no_privileged_event_of_strangers,
        everything_has_a_name,
        a_failure_cancels_no_other_cell,
        no_host_gpu,
        actions_by_commit,
    )
}


def check_house(root: Path) -> list[Finding]:
    """Check every file of a tree against every rule."""
    found = []
    for path in (*workflow_files(root), *action_files(root)):
        file = WorkflowFile(path, (root / path).read_text(), read_document(root / path))
        found += [Finding(path, 0, f"{name}: {message}") for name, rule in RULES.items() for message in rule(file)]
    return found


def _is_privileged(job: Mapping[str, Any]) -> bool:
    permissions = job.get("permissions", {})
    writes = permissions == "write-all" or (isinstance(permissions, dict) and "write" in permissions.values())
    return writes or re.search(r"secrets\.(?!GITHUB_TOKEN\b)", str(job)) is not None
