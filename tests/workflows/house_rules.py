"""Project rules for workflows and composite actions that no checker has.

Lists say what is allowed in a privileged job, which has a secret or a token that can write.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from workflows.checkers import Finding
from workflows.elements import SEAL, UNSEAL, Element, files, fixed_parts, jobs, parts, steps, units, with_called
from workflows.rule import Rule, apply_rules

RELEASE_WRITERS = frozenset({
    *("_batch/upload", "_build_rocm/release", "_publish/stage", "_release/cells", "_release/publish"),
    *("build/collect", "build/release", "refresh/packages", "refresh/refresh"),
})  # fmt: skip
"""FILE/JOB of the only jobs that may have contents: write, because they publish or open a pull request."""

COMMANDS = re.compile(
    r'\./factory (--version$|ci (answer|collect|publish-kernels) "\$TARGET" )'
    r'|\./factory (ci digest |index "\$TARGET" --packages |refresh --online --report |lock --upgrade$)'
    r'|\./factory publish "\$TARGET" (--tag "\$TAG" --(attestation|staged) |rows/\* --(?!.*\.whl))'
    r"|\.venv/bin/python scripts/(propose_changes|report_issue)\.py\b"
    r"|sudo --preserve-env=RUNNER_ENVIRONMENT python3 scripts/free_disk\.py$"
    r"|gh (issue (comment|view)|workflow run) "
)
"""What a privileged job may run: nothing that runs code of a wheel or of its sources."""

ACTIONS = {
    "actions/attest": "subject-checksums",
    "actions/checkout": "persist-credentials",
    "actions/deploy-pages": "artifact_name",
    "actions/download-artifact": "merge-multiple name path pattern",
    "actions/setup-python": "python-version",
    "actions/upload-artifact": "compression-level if-no-files-found name overwrite path retention-days",
    SEAL: "name path",
    UNSEAL: "name path sha256",
    "./.github/actions/free-disk": "",
    "./.github/actions/setup": "",
    "./.github/workflows/_batch.yml": "batch cells kernel-sets plain runner tag",
    "./.github/workflows/_publish.yml": "batch cells plain rows tag wheels",
    "./.github/workflows/_release.yml": "batches runner tag",
    "./.github/workflows/check.yml": "",
    "./.github/workflows/pages.yml": "",
}
"""What a privileged job may use, with these inputs only: nothing that reads a cache, another run or other sources."""

UNSEALED = ("kernels-*", "log-check")
"""Artifacts that a privileged job takes without a digest. Kernels are compiled in a matrix, whose jobs share their
outputs; a report only becomes the text of an issue."""

OUTPUTS = {
    r"\./factory ci digest ": "sha256",
    r"\./factory ci batch ": "passed",
    r"\./factory ci collect ": "batches count kernels-pending next-round unattested",
    r"\./factory ci jobs (?!.*--versions )": "count kernel-count kernels",
    r"\./factory ci jobs .*--versions ": "batches count",
    "actions/attest$": "attestation-id attestation-url bundle-path",
    "actions/upload-artifact$": "artifact-digest artifact-id artifact-url",
}
"""What sets outputs, and which. Of scripts, only these and `echo` without a variable may set any."""

CACHE_FOLDERS = tuple(f"~/.cache/wheelfactory/{name}" for name in ("logs", "plain", "proofs"))
"""Folders that the factory writes and reads without an option that names them."""

_CHECK_RUN = './factory ci check-run "github:$REPOSITORY" "$PREVIOUS_RUN"'
_COMMAND_FILES = re.compile(r"GITHUB_(ENV|PATH|STATE)\b|::(set|add-path|save)|github\.(env|output|path|state)\b")
_LITERAL = re.compile(r'echo [^$`]*>> "\$GITHUB_(ENV|OUTPUT|PATH)"')
_OUTPUT = re.compile(r"\b((?:jobs|needs|steps)\.[\w-]+)\.outputs(?:\.|\[')([\w-]+)")
_PINNED = re.compile(r"\n|\./|([\w./-]+@[0-9a-f]{40})\n.*\1\b[^#]*# v\d+\.\d+\.\d+(\s|$)")
_SECRET = re.compile(r'\$\{\{[^}]*(?<![\w.-])secrets\b(?!\.GITHUB_TOKEN\b)|"secrets": ', re.IGNORECASE)
_REPORTED = re.compile(
    r"""!cancelled\(\) && !contains\(fromJSON\('\["success", "skipped"\]'\), needs\.[\w-]+\.result\)"""
)
_SHELL = re.compile(r"^(!|set)\s|(^|[\s/])((ba|da)?sh\s+-\w*c|eval)\s")
_STATUS = re.compile(r"\b(always|cancelled|failure)\s*\(", re.IGNORECASE)
_SUCCEEDED = re.compile(
    r"!cancelled\(\) &&[^|]* needs\.([\w-]+\.(result == 'success'|outputs\.[\w-]+ == 'true')"
    r"|(cells|publish)\.result != 'skipped')[^|]*"
)
"""The jobs *cells* and *publish* fail for one batch, and publish the others."""
_TIME_IS_UP = re.compile(r'\./factory kernels [^|]* --budget [^|]* \|\| test "\$\?" -eq 6')


def is_privileged(element: Element) -> bool:
    """Return whether a token that can write, or a secret, is in reach of a job, an action or their steps."""
    if element.job == "runs":
        return f"./{PurePosixPath(element.path).parent}" in ACTIONS
    permissions = element.unit.get("permissions", element.file.get("permissions"))
    return "write" in str(permissions) or bool(_SECRET.search(json.dumps([element.unit, element.file.get("env")])))


def is_privileged_and_unlisted(step: Element) -> bool:
    """Return whether a step has rights and is not listed, or unpacks an artifact of any job over the checkout."""
    if step.uses not in ACTIONS:
        return is_privileged(step) and (bool(step.uses) or not COMMANDS.match(step.text("run")))
    over = step.is_download and not fixed_parts(str(step.inputs.get("path", "")))
    unsealed = step.is_download and step.uses != UNSEAL and step.artifact not in UNSEALED
    return is_privileged(step) and (over or unsealed or not set(step.inputs) <= set(ACTIONS[step.uses].split()))


def hides_failures(element: Element) -> bool:
    """Return whether a job or step succeeds after a failure, other than to keep a log or to look into another run."""
    goes_on = element.content.get("continue-on-error") and "run-id" not in element.inputs and not element.is_log
    has_other_end = "||" in element.operators and not _TIME_IS_UP.fullmatch(element.text("run"))
    return bool(goes_on or has_other_end or _SHELL.search(element.bare_script))


def goes_on_after_a_failure(element: Element) -> bool:
    """Return whether an ``if`` is wrong: after a failure only *reconcile* and *report*, which writes issues, run."""
    condition = element.text("if").strip("${} ")
    if element.job == "report" and element.content is element.unit and _REPORTED.fullmatch(condition):
        return "write" in str({**element.below("permissions"), "issues": ""})
    if element.job == "reconcile" and element.content is element.unit:
        return condition not in ("always()", "!cancelled()")
    if element.is_upload and not is_privileged(element):  # what was made until a failure or the time limit
        return condition not in ("", "always()", "failure() || cancelled()")
    matters = is_privileged(element)
    return matters and bool(_STATUS.search(condition)) and not _SUCCEEDED.fullmatch(condition)


def outputs(element: Element) -> set[str]:
    """Return the outputs of a job or step, or of what it calls."""
    for file in element.called():
        return set(file.below("on", "workflow_call", "outputs") or file.below("outputs"))
    script = element.text("run")
    if script and "GITHUB_OUTPUT" not in script:
        return set()
    if _LITERAL.fullmatch(script):
        return set(re.findall(r"([\w-]+)=", script))
    listed = [names.split() for what, names in OUTPUTS.items() if re.match(what, script or element.uses)]
    return set(element.below("outputs")).union(*listed)


def unset_outputs(file: Element) -> Iterator[str]:
    """Yield the outputs that a file reads and nothing sets."""
    for unit in units(file):
        known = {f"{context}.{job.job}": outputs(job) for job in jobs(file) for context in ("jobs", "needs")}
        known |= {f"steps.{step.text('id')}": outputs(step) for step in steps(unit)}
        text = json.dumps([unit.content, file.below("outputs"), file.below("on")])
        yield from (read[0] for read in _OUTPUT.finditer(text) if read[2] not in known.get(read[1], ()))


def sets_unlisted_variables(step: Element) -> bool:
    """Return whether text of a stranger could become a variable, a folder of PATH, or an output of several lines."""
    text = "" if _LITERAL.fullmatch(step.text("run")) else json.dumps(step.content)
    return bool(_COMMAND_FILES.search(text)) or ("GITHUB_OUTPUT" in text and not outputs(step))


def downloads_of_nothing(file: Element) -> Iterator[Element]:
    """Yield what a run of this workflow downloads and none of its jobs uploads; only *report* reads logs."""
    run = list(with_called(steps(file))) if set(file.content.get("on", ())) - {"workflow_call"} else []
    uploads = [step.artifact for step in run if step.is_upload and not step.is_log]
    for step in run:
        reads_log = step.job == "report" and step.artifact.startswith("log-")
        is_download = step.is_download and "run-id" not in step.inputs and not reads_log
        is_uploaded = any(fnmatchcase(one, step.artifact) or fnmatchcase(step.artifact, one) for one in uploads)
        if is_download and not is_uploaded:
            yield step


def missing_paths(unit: Element) -> Iterator[str]:
    """Yield the paths that no earlier step names, or for a download no later step."""
    everything = list(steps(unit))
    for number, step in enumerate(everything):
        later = step.is_download
        near = with_called(iter(everything[number + 1 :] if later else everything[:number]))
        words = [word for one in near for word in (*re.split(r"[\s\"'=]+", one.text("run")), *one.paths)]
        named = [folders for folders in map(fixed_parts, (*words, *CACHE_FOLDERS)) if folders]
        for path in step.paths:
            mine = fixed_parts(path)
            if mine and not any(all(a == b for a, b in zip(mine, other, strict=False)) for other in named):
                yield path


def unchecked_runs(unit: Element) -> Iterator[str]:
    """Yield the downloads from another run that no earlier step of the job checks under the same condition."""
    for number, step in enumerate(everything := list(steps(unit))):
        values = {"PREVIOUS_RUN": step.inputs.get("run-id"), "REPOSITORY": "${{ github.repository }}"}
        checks = [one for one in everything[:number] if one.text("run") == _CHECK_RUN]
        same = [one for one in checks if one.text("if") == step.text("if")]
        if values["PREVIOUS_RUN"] and not any(values.items() <= one.below("env").items() for one in same):
            yield step.title


def missing_keys(element: Element) -> Iterator[str]:
    """Yield the keys without which GitHub would grant rights, wait for hours, cancel other cells or show no name."""
    content, is_file = element.content, element.content is element.file
    if "jobs" in content and content.get("permissions") != {}:
        yield "permissions: {}"
    if "name" not in content and (is_file or content is element.unit or "run" in content):
        yield "name"
    if "steps" in content and element.job != "runs" and "timeout-minutes" not in content:
        yield "timeout-minutes"
    if "matrix" in element.below("strategy") and element.below("strategy").get("fail-fast") is not False:
        yield "fail-fast: false"


RULES = {
    "no expression in a script": Rule(steps, lambda step: "${{" in step.text("run"), "pass the value in `env`"),
    "one command a step": Rule(
        steps,
        lambda step: step.operators - {"<", ">", ">>", ">&", "||"} or re.search(r"`|\$\(", step.text("run")),
        "move the logic into a command of the factory",
    ),
    "no failure is hidden": Rule(
        parts, hides_failures, "let it fail; a result that is no failure needs an exit code of its own"
    ),
    "nothing goes on after a failure": Rule(
        parts, goes_on_after_a_failure, "use always() only in reconcile; elsewhere test needs.JOB.result == 'success'"
    ),
    "nothing is left to a default": Rule(lambda file: (file, *parts(file)), missing_keys, "add it"),
    "only these jobs write releases": Rule(
        jobs,
        lambda job: (
            job.place not in RELEASE_WRITERS and re.search("contents': 'write|write-all", job.text("permissions"))
        ),
        "remove the permission, or add the reviewed job to RELEASE_WRITERS",
    ),
    "privileged jobs do only what is listed": Rule(
        steps,
        is_privileged_and_unlisted,
        "move it to a job without rights, or review and list it; name a folder in `path`",
    ),
    "only listed commands set outputs": Rule(
        steps,
        sets_unlisted_variables,
        "print the outputs in a command of `wheelfactory ci` and list them in OUTPUTS; pass other values in `env`",
    ),
    "every output is set": Rule(
        files, unset_outputs, "correct the name, or add it to what sets it (commands: OUTPUTS)"
    ),
    "every artifact is uploaded": Rule(
        downloads_of_nothing,
        lambda step: iter([step.artifact]),
        "correct the name, or upload the artifact in a job of the same run",
    ),
    "another run is checked before its artifacts are used": Rule(
        units, unchecked_runs, f"run `{_CHECK_RUN}` in an earlier step, with the same `if`"
    ),
    "every path is written and read": Rule(
        units, missing_paths, "correct the path, or name it in the command that uses it"
    ),
    "no event of strangers": Rule(
        files, lambda file: re.search("pull_request_target|workflow_run", file.text("on")), "use another event"
    ),
    "no host gpu": Rule(files, lambda file: "/dev/kfd" in file.source(), "remove /dev/kfd: hosted runners have no GPU"),
    "actions by commit": Rule(
        steps,
        lambda step: not _PINNED.match(f"{step.text('uses')}\n{step.source('uses')}"),
        "write `uses: OWNER/NAME@COMMIT # vX.Y.Z`",
    ),
}


def check_house(root: Path) -> list[Finding]:
    """Check every file of a tree against every rule."""
    return apply_rules(root, RULES)
