"""The machine of one job: its folders and the steps that run on it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workflows.actions import ActionUse, use_action
from workflows.artifacts import ActionError, Store
from workflows.document import WorkflowError, read_document
from workflows.events import github_environ
from workflows.expressions import STATUSES, ExpressionError, Expressions, Scope, Value
from workflows.results import FAILURE, SKIPPED, SUCCESS, Step
from workflows.sandbox import Sandbox

SHELLS = {None: ("bash", "-e"), "bash": ("bash", "--noprofile", "--norc", "-eo", "pipefail")}
"""``shell`` -> command of GitHub's runner (docs on workflow syntax); only an explicit `bash` has pipefail."""

_FILES = ("OUTPUT", "ENV", "PATH", "STEP_SUMMARY")
_UNSUPPORTED = ("ENV", "PATH")
"""Those that no step of our workflows writes."""


class CommandFileError(Exception):
    """A line that GitHub rejects."""


def read_pairs(text: str, file: str) -> dict[str, str]:
    """Parse ``name=value`` lines. Raises `CommandFileError` for any other line, also for a value of several lines."""
    found: dict[str, str] = {}
    for line in filter(None, text.splitlines()):
        name, equals, value = line.partition("=")
        if not (name and equals) or "<<" in name:
            raise CommandFileError(f"Invalid format '{line}' in {file}")
        found[name] = value
    return found


@dataclass(frozen=True)
class RunContext:
    """Everything that the jobs of a run share."""

    expressions: Expressions
    sandbox: Sandbox
    tree: Path
    home: Path
    """Initial content of the home directories."""
    folder: Path
    store: Store
    secrets: Mapping[str, str]
    unexecuted: Container[str]
    """Paths of jobs that succeed without running steps; only their expressions are evaluated."""
    counter: Iterator[int]
    last_first: bool
    """Whether a job at the end of a file runs before those above that it does not need."""


@dataclass
class Frame:
    """State of the steps of a job or composite action."""

    contexts: Mapping[str, Value]
    environ: Mapping[str, str]
    steps: dict[str, Any] = field(default_factory=dict)
    failed: bool = False
    composite: Path | None = None


@dataclass
class Machine:
    """A fresh machine for one job; deleted afterwards."""

    shared: RunContext
    folder: Path
    permissions: Mapping[str, str]
    token: str
    executed: bool
    """Whether scripts and actions run, or only expressions are evaluated."""
    summary: str = ""
    done: list[Step] = field(default_factory=list)

    def __enter__(self) -> Machine:
        for name in ("work", "temp") if self.executed else ():
            (self.folder / name).mkdir(parents=True)
        if self.executed:
            shutil.copytree(self.shared.home, self.folder / "home", symlinks=True)
        return self

    def __exit__(self, *_: object) -> None:
        if self.executed:
            shutil.rmtree(self.folder)

    @property
    def workspace(self) -> Path:
        """GITHUB_WORKSPACE."""
        return self.folder / "work"

    @property
    def temp(self) -> Path:
        """RUNNER_TEMP."""
        return self.folder / "temp"

    def run(self, steps: list[Mapping[str, Any]], frame: Frame) -> None:
        """Run steps in order; set `frame.failed` if one failed."""
        for step in steps:
            place = len(self.done)
            outcome, output, outputs = self._run(step, frame)
            frame.failed |= outcome == FAILURE
            if "id" in step:
                frame.steps[step["id"]] = {"outputs": outputs, "outcome": outcome}
            self._record_step(step, frame, (outcome, output, outputs), place)

    def _run(self, step: Mapping[str, Any], frame: Frame) -> tuple[str, str, dict[str, str]]:
        try:
            environ = dict(frame.environ)
            if not self.shared.expressions.condition(step.get("if"), self._scope(frame, environ)):
                return SKIPPED, "", {}
            own = self.shared.expressions.fill(step.get("env", {}), self._scope(frame, environ))
            environ |= {name: self._text(value, self._scope(frame, environ)) for name, value in own.items()}
            if "uses" in step:
                outputs = self._use(step, frame, environ)
                return SUCCESS, "", dict(outputs)
            returncode, output, outputs = self._script(step, frame, environ)
            return (FAILURE if returncode else SUCCESS), output, outputs
        except (ExpressionError, ActionError, CommandFileError) as error:
            return FAILURE, f"Error: {error}\n", {}

    def _record_step(
        self, step: Mapping[str, Any], frame: Frame, ended: tuple[str, str, dict[str, str]], place: int
    ) -> None:
        outcome, output, outputs = ended
        environ = dict(frame.environ)
        inputs = {} if outcome == SKIPPED else self._quietly(step.get("with", {}), frame, environ)
        own = {} if outcome == SKIPPED else self._quietly(step.get("env", {}), frame, environ)
        seen = [*environ.values(), *inputs.values(), *own.values()]
        saw = bool(self.token) and any(self.token in text for text in seen)
        name = str(step.get("name", step.get("uses", step.get("run", ""))))
        uses = step.get("uses", "")
        self.done.insert(place, Step(name, outcome, output, outputs, uses, inputs, saw))

    def _quietly(self, values: Mapping[str, Any], frame: Frame, environ: Mapping[str, str]) -> dict[str, str]:
        try:
            scope = self._scope(frame, environ)
            return {name: self._text(value, scope) for name, value in values.items()}
        except ExpressionError:
            return {}

    def _script(
        self, step: Mapping[str, Any], frame: Frame, environ: Mapping[str, str]
    ) -> tuple[int, str, dict[str, str]]:
        text = self._text(step["run"], self._scope(frame, environ))
        shell = step.get("shell")
        if shell not in SHELLS or (frame.composite and shell is None):
            raise WorkflowError(f"the shell {shell!r} is not supported")
        if not self.executed:
            return 0, "", {}
        script = self.temp / "script.sh"
        script.write_text(text)
        files = {name: self.temp / f"file-{name}" for name in _FILES}
        for file in files.values():
            file.write_text("")
        named = {f"GITHUB_{name}": str(file) for name, file in files.items()}
        (self.temp / "event.json").write_text(json.dumps(frame.contexts["github"]["event"]))
        ended = self.shared.sandbox.run(
            [*SHELLS[shell], str(script)], self.workspace, {**self._runner_environ(frame), **environ, **named}
        )
        self.summary += files["STEP_SUMMARY"].read_text()
        for name in _UNSUPPORTED:
            if files[name].read_text():
                raise CommandFileError(f"GITHUB_{name} is not supported")
        return ended.returncode, ended.output, read_pairs(files["OUTPUT"].read_text(), "GITHUB_OUTPUT")

    def _use(self, step: Mapping[str, Any], frame: Frame, environ: dict[str, str]) -> Mapping[str, str]:
        scope = self._scope(frame, environ)
        inputs = {name: self._text(value, scope) for name, value in step.get("with", {}).items()}
        if step["uses"].startswith("./"):
            return self._composite(step["uses"], inputs, frame, environ)
        if not self.executed:
            return {}
        name = step["uses"].partition("@")[0]
        home, shared = self.folder / "home", self.shared
        use = ActionUse(inputs, self.workspace, home, shared.tree, self.permissions, shared.store)
        return use_action(name, use)

    def _composite(
        self, uses: str, inputs: Mapping[str, str], frame: Frame, environ: dict[str, str]
    ) -> Mapping[str, str]:
        folder = (self.workspace if self.executed else self.shared.tree) / uses
        action = read_document(folder / "action.yml")
        declared = action.get("inputs") or {}
        unknown = sorted(set(inputs) - set(declared))
        missing = [name for name, about in declared.items() if about.get("required") and name not in inputs]
        if unknown or missing:
            raise WorkflowError(f"{uses}: no input {unknown[0]}" if unknown else f"{uses}: requires {missing[0]}")
        own = {name: str(about.get("default", "")) for name, about in declared.items()} | dict(inputs)
        seen = {name: frame.contexts[name] for name in ("github", "runner", "job", "strategy", "matrix")}
        inner = Frame({**seen, "inputs": own}, environ, composite=folder)
        self.run(action["runs"]["steps"], inner)
        scope = self._scope(inner, inner.environ)
        outputs = {name: self._text(about["value"], scope) for name, about in (action.get("outputs") or {}).items()}
        if inner.failed:
            raise ActionError(f"a step of {uses} failed")
        return outputs

    def _runner_environ(self, frame: Frame) -> dict[str, str]:
        """Return the variables that the runner sets for every process."""
        found = {
            **github_environ(frame.contexts["github"]),
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_WORKSPACE": str(self.workspace),
            "HOME": str(self.folder / "home"),
            "TMPDIR": str(self.temp),
            "RUNNER_TEMP": str(self.temp),
            "GITHUB_EVENT_PATH": str(self.temp / "event.json"),
            "RUNNER_OS": "Linux",
            "RUNNER_ARCH": "X64",
            "RUNNER_ENVIRONMENT": "github-hosted",
        }
        if frame.composite:
            found["GITHUB_ACTION_PATH"] = str(frame.composite)
        return found

    def _text(self, value: Value, scope: Scope) -> str:
        return self.shared.expressions.text(value, scope)

    def _scope(self, frame: Frame, environ: Mapping[str, str]) -> Scope:
        status = dict(zip(STATUSES, (not frame.failed, frame.failed, True, False), strict=True))
        return Scope(
            {**frame.contexts, "env": dict(environ), "steps": frame.steps},
            status,
            self.workspace if self.executed else self.shared.tree,
        )
