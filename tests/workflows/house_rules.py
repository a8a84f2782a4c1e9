"""Project rules for workflows and composite actions that neither a checker nor the list of settings shows."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from workflows.checkers import Finding, action_files, workflow_files
from workflows.elements import Element, files, jobs, read_element, steps, units


class Rule(NamedTuple):
    """What a rule reads, what breaks it there (anything true, or each detail), and what to do then."""

    elements: Callable[[Element], Iterable[Element]]
    broken: Callable[[Element], object]
    remedy: str


UNSEAL = "./.github/actions/unseal"
"""Our action that downloads an artifact and compares its digest."""

UNSEALED = ("{jobs,kernels-*}", "log-check")
"""Artifacts that a privileged job takes otherwise. Kernels are compiled in a matrix, whose jobs share their outputs:
`ci check-run` compares them. A report only becomes the text of an issue."""

OUTPUTS = {
    r"\./factory ci digest ": "sha256",
    r"\./factory ci batch ": "passed",
    r"\./factory ci collect ": "batches count kernels-pending next-round unattested",
    r"\./factory ci jobs (?!.*--versions )": "count kernel-count kernels proof-count proofs",
    r"\./factory ci jobs .*--versions ": "batches count",
    "actions/attest$": "attestation-id attestation-url bundle-path",
    "actions/upload-artifact$": "artifact-digest artifact-id artifact-url",
}
"""What sets outputs, and which. Of scripts, only these and `echo` without a variable may set any."""

_LITERAL = re.compile(r'echo [^$`]*>> "\$GITHUB_OUTPUT"')
_OUTPUT = re.compile(r"\b((?:jobs|needs|steps)\.[\w-]+)\.outputs(?:\.|\[')([\w-]+)")
_UNFINISHED = re.compile(r'\./factory kernels [^|]* --(budget|prove) [^|]* \|\| test "\$\?" -eq 6')


def takes_what_any_job_can_write(step: Element) -> bool:
    """Return whether a step with rights unpacks an artifact without its digest, or over the checkout."""
    permissions, inputs = step.unit.get("permissions", step.file.get("permissions")), step.below("with")
    if "write" not in str(permissions) or step.uses not in (UNSEAL, "actions/download-artifact"):
        return False
    unsealed = step.uses != UNSEAL and inputs.get("pattern") not in UNSEALED
    return unsealed or not PurePosixPath(inputs.get("path", "")).parts


def has_several_commands(step: Element) -> bool:
    """Return whether a script is more than one command; only unfinished kernels may be no failure."""
    script = step.bare_script
    operators = set(re.findall(r"[();<>|&\n]+|`", script)) - {"<", "<<<", ">", ">>", ">&"}
    hidden = re.search(r"^(!|set)\s|(^|[\s/])((ba|da)?sh\s+-\w*c|eval)\s", script) or "$(" in step.text("run")
    return bool(hidden or operators) and not _UNFINISHED.fullmatch(step.text("run"))


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


def missing_keys(element: Element) -> Iterator[str]:
    """Yield the keys without which GitHub would wait for hours, or cancel other cells."""
    if "steps" in element.content and "timeout-minutes" not in element.content:
        yield "timeout-minutes"
    if "matrix" in element.below("strategy") and element.below("strategy").get("fail-fast") is not False:
        yield "fail-fast: false"


RULES = {
    "one command a step": Rule(
        steps,
        has_several_commands,
        "move the logic into a command of the factory; a result that is no failure needs an exit code of its own",
    ),
    "every output is set": Rule(
        files, unset_outputs, "correct the name, or add it to what sets it (commands: OUTPUTS)"
    ),
    "privileged jobs take what is sealed": Rule(
        steps, takes_what_any_job_can_write, "use the action unseal, with the digest and a folder in `path`"
    ),
    "nothing is left to a default": Rule(jobs, missing_keys, "add it"),
}


def check_house(root: Path) -> list[Finding]:
    """Check every workflow and composite action of a tree against every rule."""
    found = []
    for file in (read_element(root, path) for path in (*workflow_files(root), *action_files(root))):
        for name, rule in RULES.items():
            for element in rule.elements(file):
                broken = rule.broken(element)
                for what in broken if isinstance(broken, Iterator) else [element.title] if broken else []:
                    message = f"{name}: {element.job or 'the file'}: {what}; {rule.remedy}"
                    found.append(Finding(element.path, element.line(what), message))
    return list(dict.fromkeys(found))
