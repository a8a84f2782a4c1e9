"""Rules of ours for workflows and composite actions that no checker knows. Pure: text and content in, findings out."""

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
"""The only jobs that may have contents: write, by file: those that publish, and the one that opens a pull request."""

BUILDS = re.compile(
    r"\./factory\s+(run|build|kernels)\b(?!.*--(join|keep|take))|build_rocm\.sh|\b(docker|podman)\b|setup\.py"
)
"""Commands that run what others wrote: sources of flash-attn, images, compilers."""

_PINNED = re.compile(r"uses:\s*(?P<action>[\w.-]+/[\w./-]+)@[0-9a-f]{40} # v\d+\.\d+\.\d+(\s|$)")
_USES = re.compile(r"^\s*(?:-\s+)?uses:\s*(?P<uses>\S+)")
_FORBIDDEN_EVENTS = ("pull_request_target", "workflow_run")


@dataclass(frozen=True)
class Written:
    """A file as it is written, and what it says."""

    file: str
    text: str
    content: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Its own name."""
        return Path(self.file).name

    @property
    def is_workflow(self) -> bool:
        """Or a composite action."""
        return "runs" not in self.content

    def jobs(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Its jobs; none in an action."""
        yield from self.content.get("jobs", {}).items()

    def steps(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Its steps, each with its job."""
        for name, job in (("", self.content.get("runs", {})), *self.jobs()):
            for step in job.get("steps", []):
                yield name, step


Rule: TypeAlias = Callable[[Written], Iterator[str]]


def no_expression_in_a_script(written: Written) -> Iterator[str]:
    """Text of others in a script is run as script; it belongs into ``env``."""
    for _, step in written.steps():
        if "${{" in str(step.get("run", "")):
            yield f"an expression stands in a script: {step['run'].strip()}"


def one_command_a_step(written: Written) -> Iterator[str]:
    """Logic is tested where it is Python; a script only starts it."""
    for _, step in written.steps():
        script = str(step.get("run", "")).replace("\\\n", " ").strip()
        words = list(shlex.shlex(script, posix=True, punctuation_chars=True)) if "\n" not in script else ["\n"]
        if {"\n", ";", "&&"} & set(words):
            yield f"more than one command: {script}"


def nothing_granted_on_top(written: Written) -> Iterator[str]:
    """Each job says what it needs."""
    if written.is_workflow and written.content.get("permissions") != {}:
        yield "permissions: {} is missing on top"


def only_these_jobs_write_releases(written: Written) -> Iterator[str]:
    """Whatever else a job does, it cannot change what is published."""
    for name, job in written.jobs():
        granted = job.get("permissions", {})
        may = granted == "write-all" or (isinstance(granted, dict) and granted.get("contents") == "write")
        if may and name not in RELEASE_WRITERS.get(written.name, set()):
            yield f"{name}: contents: write is not for this job"


def jobs_with_rights_build_nothing(written: Written) -> Iterator[str]:
    """Sources and images of others never see a token that writes, or a secret."""
    for name, step in written.steps():
        job = written.content.get("jobs", {}).get(name, {})
        if _has_rights(job) and BUILDS.search(str(step.get("run", ""))):
            yield f"{name}: builds with a token that writes, or a secret: {step['run'].strip()}"


def jobs_with_rights_restore_no_cache(written: Written) -> Iterator[str]:
    """What another job put into a cache is not trusted there."""
    for name, step in written.steps():
        job = written.content.get("jobs", {}).get(name, {})
        cached = str(step.get("uses", "")).startswith("actions/cache") or "cache" in step.get("with", {})
        if _has_rights(job) and cached:
            yield f"{name}: restores a cache with a token that writes, or a secret"


def checkouts_keep_no_token(written: Written) -> Iterator[str]:
    """Else the token lies in the checkout for everything that runs later."""
    for name, step in written.steps():
        is_checkout = str(step.get("uses", "")).startswith("actions/checkout@")
        if is_checkout and step.get("with", {}).get("persist-credentials") is not False:
            yield f"{name}: a checkout without persist-credentials: false"


def every_job_ends(written: Written) -> Iterator[str]:
    """GitHub's default is six hours."""
    for name, job in written.jobs():
        if "steps" in job and "timeout-minutes" not in job:
            yield f"{name}: timeout-minutes is missing"


def no_event_with_the_rights_of_others(written: Written) -> Iterator[str]:
    """Both run with this repository's secrets on what a stranger wrote."""
    on = written.content.get("on", {})
    for event in _FORBIDDEN_EVENTS:
        if event in (on if isinstance(on, dict) else as_list(on)):
            yield f"starts on {event}"


def everything_has_a_name(written: Written) -> Iterator[str]:
    """What a person reads on GitHub."""
    if "name" not in written.content:
        yield "the file has no name"
    for name, job in written.jobs():
        if "name" not in job:
            yield f"{name}: the job has no name"
    for name, step in written.steps():
        if "run" in step and "name" not in step:
            yield f"{name}: a step has no name: {step['run'].strip()}"


def a_failure_leaves_other_cells_alone(written: Written) -> Iterator[str]:
    """GitHub's default cancels them."""
    for name, job in written.jobs():
        strategy = job.get("strategy", {})
        if "matrix" in strategy and strategy.get("fail-fast") is not False:
            yield f"{name}: fail-fast: false is missing"


def no_gpu_of_the_host(written: Written) -> Iterator[str]:
    """Hosted runners have none, and starting a container with one fails."""
    if "/dev/kfd" in written.text:
        yield "names /dev/kfd"


def actions_by_commit(written: Written) -> Iterator[str]:
    """A tag can be moved; the version stands beside the commit for people and for dependabot."""
    for line in written.text.splitlines():
        uses = _USES.match(line)
        if uses and not uses["uses"].startswith("./") and not _PINNED.search(line):
            yield f"not by a commit with its version: {line.strip()}"


RULES: Mapping[str, Rule] = {
    rule.__name__.replace("_", " "): rule
    for rule in (
        no_expression_in_a_script,
        one_command_a_step,
        nothing_granted_on_top,
        only_these_jobs_write_releases,
        jobs_with_rights_build_nothing,
        jobs_with_rights_restore_no_cache,
        checkouts_keep_no_token,
        every_job_ends,
        no_event_with_the_rights_of_others,
        everything_has_a_name,
        a_failure_leaves_other_cells_alone,
        no_gpu_of_the_host,
        actions_by_commit,
    )
}


def check_house(root: Path) -> list[Finding]:
    """All rules over all files of a tree."""
    found = []
    for file in (*workflow_files(root), *action_files(root)):
        written = Written(file, (root / file).read_text(), read_document(root / file))
        found += [Finding(file, 0, f"{name}: {said}") for name, rule in RULES.items() for said in rule(written)]
    return found


def _has_rights(job: Mapping[str, Any]) -> bool:
    granted = job.get("permissions", {})
    writes = granted == "write-all" or (isinstance(granted, dict) and "write" in granted.values())
    return writes or re.search(r"secrets\.(?!GITHUB_TOKEN\b)", str(job)) is not None
