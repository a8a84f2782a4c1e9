"""Read the text of a build, of pip, an import, a GPU or a container in one pass and in bounded memory."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from wheelfactory.core.errors import InputError
from wheelfactory.core.wrap import count_text
from wheelfactory.explain.causes import HINT_PREFIX, Cause, CauseFinder, TextKind, may_show_error
from wheelfactory.explain.compiler_command import CompilerCommand, find_compiler_command
from wheelfactory.explain.glossary import glossary
from wheelfactory.explain.log_lines import LogLine, join_split_commands
from wheelfactory.explain.progress import Progress, ProgressReader

PREPARING, RUNNING, FINISHED, FAILED, COMMAND = "preparing", "running", "finished", "failed", "command"
"""States of a log: no compile finished yet; compiling, or stopped without a message; made a wheel; failed; and a single
compile command without a build."""

_JOBS = re.compile(r"MAX_JOBS[=:]\s*[\"']?(\d{1,4})\b|MAX_JOBS \((\d{1,4})\)|ninja'?,? .*'?-j'?,? ?'?(\d{1,4})\b")
_ARCHS = re.compile(r"GPU_ARCHS[=:]\s*[\"']?(gfx[0-9a-f]+(?:;gfx[0-9a-f]+)*)")
_TORCH = re.compile(r"^torch\.__version__ += (\S+)|requested torch==(\S+)|^[Pp]y[Tt]orch version: ?(\S+)")
_FLASH_ATTN = re.compile(r"flash[-_]attn(?:==|-)(\d+\.\d+(?:\.\w+)*)")
_GPU = re.compile(r"(?:compiling for|arch ?:|RADV|gcnArchName:?|Name:) ?\(?(gfx[0-9a-f]{3,4})\b")
# what says which kind of text it is, where no symptom does
_KINDS: dict[TextKind, re.Pattern[str]] = {
    "run time": re.compile(r"-packages/(?:flash_attn|triton|aiter)/|^\[aiter\] |\b(?:HIP|HSA) [Ee]rror|hipError"),
    "pip": re.compile(
        r"^(?:Collecting|Looking in indexes|Requirement already|ERROR: (?:pip|Cannot|Could|No|Package))|\buv\b"
    ),
    "container": re.compile(
        r"^(?:#\d+ |docker: |podman: |Error response from daemon)|/Dockerfile|failed to (?:solve|register layer)"
    ),
    "build": re.compile(
        r"flash[-_]attn-\d\S*\.tar|Building wheels? for .*flash|"
        r"composable_kernel|third_party/aiter|GPU archs|\bhipcc\b|\bAMD clang\b|/hipify_python\.py|csrc/flash_attn|"
        r"-triple amdgcn|^clang\S*: error: .*(?:gfx|amd|hip)|^OSError: CUDA_HOME |cannot find (?:ROCm|HIP) "
    ),
}
_CCACHE = re.compile(r"\b(?:ccache|sccache)\b")
_LONG = 2000
# torch writes ``-c -c SOURCE`` for HIP; pip's commands contain ``-c`` without a source
_COMPILE = re.compile(r" -c (?:-c )?\S+\.(?:hip|cu|cpp|cxx|cc|c)(?:\s|$)")


@dataclass(frozen=True)
class BuildLog:
    """The facts in a log."""

    kind: TextKind
    state: str
    line_count: int
    progress: Progress | None
    command: CompilerCommand | None
    """The failed compile command, or the last one if none failed."""
    cause: Cause | None
    failed_objects: int
    jobs: int | None
    """``MAX_JOBS`` or ``-j``, if in the log."""
    archs: tuple[str, ...]
    """The archs of the command, or of ``GPU_ARCHS`` in the log; empty if unknown."""
    torch: str
    """The version that setup.py prints; empty if it prints none."""
    no_ninja: bool
    """Whether torch found no ninja, so that it compiles one file at a time."""
    ccache: bool
    is_cuda: bool
    """Whether it is a build for NVIDIA GPUs: by its command, or without one by its torch."""


def read_build_log(lines: Iterable[LogLine], name: str) -> BuildLog:
    """Read a whole text; `name` appears in the error. Raises InputError if it is of no kind that has symptoms."""
    reader = _Reader()
    for line in join_split_commands(lines):
        reader.read_line(line)
    return reader.build_log(name)


class _Reader:
    """Collects the facts line by line."""

    def __init__(self) -> None:
        self.lines = self.failed_objects = 0
        self.follower, self.search = ProgressReader(), CauseFinder()
        self.command_line = self.before_last = ""
        self.jobs: int | None = None
        self.torch = self.flash_attn = self.gpu = ""
        self.kind: TextKind | None = None
        self.archs: tuple[str, ...] = ()
        self.begun = self.finished = self.failed = self.no_ninja = self.ccache = self.after_failure = False

    def read_line(self, line: LogLine) -> None:
        self.lines += 1
        text = line.text
        before = self.follower.progress
        is_progress = self.follower.read_line(line)
        now = self.follower.progress
        # in a new ninja run, the build went on after an earlier failure
        if now and not now.mixed and now.runs > (before.runs if before else 0):
            self.search, self.finished, self.failed, self.failed_objects = CauseFinder(), False, False, 0
        if " -c " in text and _COMPILE.search(text) and (not self.failed_objects or self.after_failure):
            self.before_last, self.command_line = self.command_line, text
            self.ccache = self.ccache or bool(_CCACHE.search(text))
        self.after_failure = False
        if is_progress:
            self.search.read_context(text)
            return
        self._read_facts(text)
        self.search.read_line(text)
        # skips most lines, which are warnings about headers
        if may_show_error(text) or any(word in text for word in glossary().state_markers.line_filter):
            self._read_state(text)

    def _read_state(self, text: str) -> None:
        """Read the outcome and settings of the build."""
        # the last outcome counts, because a build can be restarted
        if glossary().state_markers.finished.search(text):
            self.finished = True
        elif glossary().state_markers.failed.search(text):
            self.failed, self.finished = True, False
            if text.startswith("FAILED: "):
                self.after_failure = not self.failed_objects  # ninja prints the command of a failure below it
                self.failed_objects += 1
        if "MAX_JOBS" in text or "ninja" in text:
            match = _JOBS.search(text)
            found = next((number for number in match.groups() if number), "0") if match else "0"
            self.jobs = int(found) or self.jobs
            self.no_ninja = self.no_ninja or "we could not find ninja" in text
        if "GPU_ARCHS" in text and not text.startswith(HINT_PREFIX):  # hints contain an example arch
            named = _ARCHS.search(text)
            self.archs = tuple(named[1].split(";")) if named else self.archs
        self.begun = self.begun or bool(glossary().state_markers.started.search(text))

    def _read_facts(self, text: str) -> None:
        """Read versions, GPU and the kind of text."""
        if len(text) >= _LONG:  # a command, in which paths contain any word
            self.kind = self.kind or ("build" if _KINDS["build"].search(text, 0, _LONG) else None)
            return
        if not self.torch and (torch := _TORCH.search(text)):
            self.torch = next(filter(None, torch.groups()))
        if not self.flash_attn and (version := _FLASH_ATTN.search(text)):
            self.flash_attn = version[1]
        if not self.gpu and (gpu := _GPU.search(text)):
            self.gpu = gpu[1]
        if self.kind is None:
            self.kind = next((kind for kind, pattern in _KINDS.items() if pattern.search(text)), None)

    def build_log(self, name: str) -> BuildLog:
        """Return all facts. Raises InputError without a build."""
        progress = self.follower.progress
        last, before = (find_compiler_command(line) for line in (self.command_line, self.before_last))
        command = before if before and not (last and last.archs) else last  # the log may end within the last one
        is_cuda = command.is_cuda if command else "+cu" in self.torch
        archs = command.archs if command and command.archs else self.archs or (self.gpu,) * bool(self.gpu)
        facts = {
            "torch": f"torch {self.torch}" * bool(self.torch),
            "flash-attn": f"flash-attn {self.flash_attn}" * bool(self.flash_attn),
            "gpu": ", ".join(archs),
        }
        known = {name: text for name, text in facts.items() if text}
        cause = self.search.cause(1 if self.no_ninja else self.jobs, known, is_cuda=is_cuda)
        is_build = progress is not None or command is not None or self.begun or self.failed_objects > 0
        kind = self._kind(cause, is_build=is_build)
        state = FAILED if kind not in (None, "build") else self._state(progress, cause)
        if kind is None or (state is None and command is None):
            if not self.lines:
                raise InputError("empty log", name, "pass the output of the build: stdout and stderr together")
            hint = "pass the output of a build (pip install -v), an installer, an import, a GPU or a container"
            which = f"{name} ({count_text(self.lines, 'line')})"
            raise InputError("not a known error about flash-attn", which, hint)
        return BuildLog(
            kind=kind,
            state=state or COMMAND,
            line_count=self.lines,
            failed_objects=self.failed_objects,
            jobs=self.jobs,
            torch=self.torch,
            no_ninja=self.no_ninja,
            ccache=self.ccache,
            progress=progress,
            command=command,
            cause=cause if state == FAILED else None,
            archs=archs,
            is_cuda=is_cuda,
        )

    def _kind(self, cause: Cause | None, *, is_build: bool) -> TextKind | None:
        """Return the kind of text; None for a text that has no symptom of its own and is of no known kind."""
        if cause and cause.kind != "build" and not (is_build and cause.kind == "import"):
            return cause.kind
        is_build = is_build or (self.failed and not (cause and self.kind))
        return "build" if is_build else self.kind if cause else None

    def _state(self, progress: Progress | None, cause: Cause | None) -> str | None:
        if self.finished:
            return FINISHED
        under_way = progress is not None or self.begun
        if cause or (self.failed and (under_way or self.command_line)):
            return FAILED
        if progress or (under_way and self.command_line):  # without ninja only the commands show progress
            return RUNNING
        return PREPARING if self.begun else None
