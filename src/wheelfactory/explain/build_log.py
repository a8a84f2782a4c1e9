"""The lines of a log -> all that is read from it, in one pass and in bounded memory."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from wheelfactory.core.errors import InputError
from wheelfactory.explain.causes import HINT_PREFIX, Cause, CauseFinder, may_show_error
from wheelfactory.explain.compiler_command import CompilerCommand, find_compiler_command
from wheelfactory.explain.glossary import glossary
from wheelfactory.explain.log_lines import LogLine, join_split_commands
from wheelfactory.explain.progress import Progress, ProgressReader

PREPARING, RUNNING, FINISHED, FAILED, COMMAND = "preparing", "running", "finished", "failed", "command"
"""What a log is of: a build before its compiles, one that compiles or was left, one that made a wheel, one that
failed, and no build at all but a compile command."""

_JOBS = re.compile(r"MAX_JOBS[=:]\s*[\"']?(\d{1,4})\b|MAX_JOBS \((\d{1,4})\)|ninja'?,? .*'?-j'?,? ?'?(\d{1,4})\b")
_ARCHS = re.compile(r"GPU_ARCHS[=:]\s*[\"']?(gfx[0-9a-f]+(?:;gfx[0-9a-f]+)*)")
_TORCH = re.compile(r"^torch\.__version__ += (\S+)")
_CCACHE = re.compile(r"\b(?:ccache|sccache)\b")
_NO_NINJA = "we could not find ninja"
_COMPILE = re.compile(r" -c (?:-c )?\S+\.(?:hip|cu|cpp|cxx|cc|c)(?:\s|$)")
"""torch writes ``-c -c SOURCE`` for HIP, and pip's own commands hold ``-c`` too."""


@dataclass(frozen=True)
class BuildLog:
    """What a log says."""

    state: str
    line_count: int
    progress: Progress | None
    command: CompilerCommand | None
    """The last compile command, that of a failure if something failed."""
    cause: Cause | None
    failed_objects: int
    jobs: int | None
    """``MAX_JOBS`` or ``-j``, if the log names it."""
    archs: tuple[str, ...]
    """What the command is for, else what ``GPU_ARCHS`` in the log names; empty if the log does not say."""
    torch: str
    """The version that setup.py prints; empty if it did not."""
    no_ninja: bool
    """Whether torch found no ninja, and so compiles one file after another."""
    ccache: bool


def read_build_log(lines: Iterable[LogLine], name: str) -> BuildLog:
    """Read a whole log; `name` is for the error. Raises `InputError` if there is no build in it."""
    reader = _Reader()
    for line in join_split_commands(lines):
        reader.see(line)
    return reader.reading(name)


class _Reader:
    """What was read so far."""

    def __init__(self) -> None:
        self.lines = self.failed_objects = 0
        self.follower, self.search = ProgressReader(), CauseFinder()
        self.command_line = self.before_last = ""
        self.jobs: int | None = None
        self.torch = ""
        self.archs: tuple[str, ...] = ()
        self.begun = self.finished = self.failed = self.no_ninja = self.ccache = self.after_failure = False

    def see(self, line: LogLine) -> None:
        self.lines += 1
        text = line.text
        before = self.follower.progress
        told = self.follower.read_line(line)
        now = self.follower.progress
        if now and not now.mixed and now.runs > (before.runs if before else 0):  # what was before did not end the build
            self.search, self.finished, self.failed, self.failed_objects = CauseFinder(), False, False, 0
        if " -c " in text and _COMPILE.search(text) and (not self.failed_objects or self.after_failure):
            self.before_last, self.command_line = self.command_line, text
            self.ccache = self.ccache or bool(_CCACHE.search(text))
        self.after_failure = False
        if told:
            return
        self.search.read_line(text)
        if may_show_error(text) or any(
            word in text for word in glossary().signs.words
        ):  # most are warnings about headers
            self._see_signs(text)

    def _see_signs(self, text: str) -> None:
        """How the build ended, where the last word counts as it may have been started again, and facts about it."""
        if glossary().signs.finished.search(text):
            self.finished = True
        elif glossary().signs.failed.search(text):
            self.failed, self.finished = True, False
            if text.startswith("FAILED: "):
                self.after_failure = not self.failed_objects  # ninja prints the command of a failure below it
                self.failed_objects += 1
        if "MAX_JOBS" in text or "ninja" in text:
            match = _JOBS.search(text)
            found = next((number for number in match.groups() if number), "0") if match else "0"
            self.jobs = int(found) or self.jobs
            self.no_ninja = self.no_ninja or _NO_NINJA in text
        if "GPU_ARCHS" in text and not text.startswith(HINT_PREFIX):  # a hint names an arch as an example
            named = _ARCHS.search(text)
            self.archs = tuple(named[1].split(";")) if named else self.archs
        if not self.begun or not self.torch:
            self.begun = self.begun or bool(glossary().signs.started.search(text))
            torch = _TORCH.match(text)
            self.torch = torch[1] if torch else self.torch

    def reading(self, name: str) -> BuildLog:
        """All of it. Raises `InputError` if no build was seen."""
        progress, cause = self.follower.progress, self.search.cause
        last, before = (find_compiler_command(line) for line in (self.command_line, self.before_last))
        command = before if before and not (last and last.archs) else last  # the log may end in the midst of the last
        state = self._state(progress, cause)
        if state is None and command is None:
            if not self.lines:
                raise InputError("an empty log", name, "give what the build printed: its stdout and stderr together")
            raise InputError(
                "no flash-attn build in this log",
                f"{name} ({self.lines} lines)",
                "give what pip, setup.py or wheelfactory printed; with pip, `pip install -v` prints the build",
            )
        return BuildLog(
            state=state or COMMAND,
            line_count=self.lines,
            progress=progress,
            command=command,
            cause=cause if state == FAILED else None,
            failed_objects=self.failed_objects,
            jobs=self.jobs,
            archs=command.archs if command and command.archs else self.archs,
            torch=self.torch,
            no_ninja=self.no_ninja,
            ccache=self.ccache,
        )

    def _state(self, progress: Progress | None, cause: Cause | None) -> str | None:
        if self.finished:
            return FINISHED
        under_way = progress is not None or self.begun
        if cause or (self.failed and (under_way or self.command_line)):
            return FAILED
        if progress or (under_way and self.command_line):  # without ninja commands are all there is to see
            return RUNNING
        return PREPARING if self.begun else None
