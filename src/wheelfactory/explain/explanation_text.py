"""Render an explanation as lines with styles, answers first, or as the document of ``--json``."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import TypeAlias

from wheelfactory.core.gpus import product_names
from wheelfactory.core.wrap import wrap_line
from wheelfactory.explain.build_log import FAILED, FINISHED, PREPARING, RUNNING, BuildLog
from wheelfactory.explain.compiler_command import CompilerCommand, KernelMeaning
from wheelfactory.explain.explanation import JOBS_FROM_CORES, Explanation
from wheelfactory.explain.glossary import glossary
from wheelfactory.explain.progress import Progress, RemainingTime
from wheelfactory.kernels.compiler.schedule import format_duration

# the version of the JSON document. Increase it when a key is renamed, removed or changes its meaning
FORMAT = 3

Document = dict[str, object]

StyledLine: TypeAlias = tuple[str, str]
"""A line, and the rich style in which a terminal shows it; empty for none."""

PIPE_WIDTH = 120
"""Width of a line where there is no terminal."""
_LABEL, _FLAG = 10, 42
"""Widths of the columns; longer paths and flags are not truncated."""
_HEAD = "bold"
_ROW_STYLES = {"cause": "bold bad", "log line": "bad", "remedy": "bold good"}

# parts of a kernel's name that get their own line
_SIZED = ("tile: ", "warps: ", "matrix: ", "pipeline: ")

_OFF = "no "

# what the document says of the progress
_OF_PROGRESS = (
    *("done", "total", "left", "current", "rate_per_minute", "elapsed_s", "reported_left", "peak_mib", "runs"),
    "mixed",
)

_KINDS = {
    "pip": "an error of pip, uv, Poetry or conda",
    "import": "an error of an import",
    "run time": "an error of a GPU at run time",
    "container": "an error of a container",
}
"""The first line for a text that is no build."""
_STATES = {
    FAILED: "build failed",
    RUNNING: "build running, or stopped without a message",
    PREPARING: "build preparing: no compile has finished yet",
}


@dataclass(frozen=True)
class _Paragraph:
    """A text to be wrapped."""

    text: str
    start: str = ""
    """What the first line begins with."""
    further: str = ""
    """What all other lines begin with."""
    style: str = ""

    def wrap(self, width: int | None) -> Iterator[StyledLine]:
        yield from ((line, self.style) for line in wrap_line(self.text, width, self.start, self.further))


def explanation_lines(explanation: Explanation, width: int | None = None, *, flags: bool = False) -> list[StyledLine]:
    """The lines, at most `width` characters long unless a word is longer: answers first, the command last.

    None is the width for a pipe, where the first line stays in one piece. With `flags`, the command is explained flag
    by flag.
    """
    flag_width = min(_FLAG, (width or PIPE_WIDTH) * 7 // 20)
    first, *others = _paragraphs(explanation, flag_width if flags else None)
    lines = [line for text in others for line in text.wrap(width or PIPE_WIDTH)]
    return [*first.wrap(width), *lines]  # programs read the first line


def _paragraphs(explanation: Explanation, flag_width: int | None) -> Iterator[_Paragraph]:
    """Progress, cause of a failure, kernel, reasons, advice, command; its flags if there is a width for them."""
    build_log = explanation.build_log
    yield from _head(explanation)
    if build_log.cause:
        reason = [("why", build_log.cause.reason)] if build_log.cause.reason else []
        last = [("log line", build_log.cause.evidence), ("remedy", build_log.cause.remedy)]
        yield from _section("why it failed", [("cause", build_log.cause.name), *reason, *last])
    if explanation.kernel and build_log.state != FINISHED:
        yield from _kernel(explanation.kernel, "failed kernel" if build_log.state == FAILED else "current kernel")
    yield from _list(f"why it {'took' if build_log.state == FINISHED else 'takes'} this long", explanation.reasons)
    shown = build_log.cause.remedy if build_log.cause else ""
    yield from _list("what to change", [line for line in explanation.advice if line != shown])
    if build_log.command:
        yield from _command(build_log.command, flag_width)
    yield from _list("instead", [explanation.wheel] if explanation.wheel else [])


def _head(explanation: Explanation) -> Iterator[_Paragraph]:
    progress, remaining = explanation.build_log.progress, explanation.remaining_time
    yield _Paragraph(f"{explanation.log_name}: {_state(explanation.build_log)}", further="    ", style=_HEAD)
    if progress and remaining and explanation.build_log.state == RUNNING and progress.done < progress.total:
        yield from _rows(_times(progress, remaining, explanation))
    if progress and progress.mixed:
        mixed = "this log mixes several parallel compiles; only one is shown: pass one log per build"
        yield from _rows([("mixed", mixed)])
    elif progress and progress.runs > 1:
        yield from _rows([("run", f"the last of {progress.runs} compiles in this log; the others are not shown")])
    if explanation.build_log.torch and explanation.build_log.state == FAILED:
        yield from _rows([("torch", explanation.build_log.torch)])
    archs = explanation.build_log.archs
    longest = max(map(len, archs), default=0)
    yield from _rows(("for", f"{arch:<{longest}}  {_products(arch)}".rstrip()) for arch in archs)


def _products(arch: str) -> str:
    """The products of an AMD arch, or the compute capability of an NVIDIA arch."""
    number = re.fullmatch(r"sm_(\d+)(\d)[af]?", arch)  # sm_90a and sm_100f have extensions of this capability
    return f"compute capability {number[1]}.{number[2]}" if number else product_names(arch)


def _state(build_log: BuildLog) -> str:
    if build_log.kind != "build":
        return _KINDS[build_log.kind] + ("" if build_log.cause else "; it shows no known cause")
    progress, state = build_log.progress, build_log.state
    far = f"{progress.done} of {progress.total} compiled" if progress else ""
    far += f" ({progress.done * 100 // progress.total} %)" if progress else ""
    if state == FINISHED:
        return f"build finished, {far or 'nothing was compiled (Triton backend, or a prebuilt wheel)'}"
    if state == RUNNING and progress and progress.done == progress.total:
        return f"build running, {far}: linking, or stopped"
    failed = f"{build_log.failed_objects} failed" if state == FAILED and build_log.failed_objects else ""
    unknown = "; the log shows no known cause" if state == FAILED and build_log.cause is None else ""
    return ", ".join(filter(None, (_STATES.get(state, "a compile command"), far, failed))) + unknown


def _times(progress: Progress, remaining: RemainingTime, explanation: Explanation) -> Iterator[tuple[str, str]]:
    with_jobs = f" with {remaining.jobs} job{'s' if remaining.jobs > 1 else ''} ({explanation.jobs_source})"
    if remaining.measured and explanation.jobs_source == JOBS_FROM_CORES:
        with_jobs = ""  # the measured rate belongs to the actual jobs, not to this guess
    predicted = f"unknown: no times in the log; predicted {progress.total * 60 / remaining.total_s:.1f} per minute"
    yield "rate", f"{progress.rate_per_minute:.1f} per minute" if progress.rate_per_minute else predicted
    by = "at the rate so far" if remaining.measured else f"predicted: {remaining.cpu_hours_left:.1f} CPU hours"
    yield "left", f"{progress.left} sources, {format_duration(remaining.left_s)}{with_jobs}, {by}"
    if progress.reported_left:
        yield "reported", f"{progress.reported_left} left, according to the build"
    if remaining.ends_at is None:
        yield "ends", f"{format_duration(remaining.left_s)} after the last line of the log (no clock times)"
    else:
        clock = time.strftime("%Y-%m-%d %H:%M", time.gmtime(remaining.ends_at))  # a log's time zone is ignored
        yield "ends", f"{clock} by the log's clock"
    if progress.peak_mib:
        yield "memory", f"{progress.peak_mib} MiB for the largest compile so far"


def _kernel(kernel: KernelMeaning, title: str) -> Iterator[_Paragraph]:
    rows = [("kernel", kernel.name), ("purpose", f"{kernel.direction}: {kernel.operation}")]
    if kernel.head_dim:
        rows.append(("head dim", f"{kernel.head_dim}, {glossary().types[kernel.type]}"))
    if kernel.arch:
        rows.append(("code for", kernel.family))
    sized = [part.meaning.partition(": ") for part in kernel.parts if part.meaning.startswith(_SIZED)]
    labels = dict.fromkeys(label for label, _, _ in sized)
    groups = {name: [text for label, _, text in sized if label == name] for name in labels}
    options = [part.meaning for part in kernel.parts if not part.meaning.startswith(_SIZED)]
    groups["options"] = [option for option in options if not option.startswith(_OFF)]
    groups["without"] = [option.removeprefix(_OFF) for option in options if option.startswith(_OFF)]
    rows += [(label, "; ".join(texts)) for label, texts in groups.items() if texts]
    rows += [("unknown", ", ".join(kernel.unknown))] if kernel.unknown else []
    yield from _section(title, rows)


def _command(command: CompilerCommand, flag_width: int | None) -> Iterator[_Paragraph]:
    rocm = f" of ROCm {command.rocm}" if command.rocm else ""
    rows = [("compiler", command.compiler + rocm), ("source", command.source)]
    if flag_width is None:
        count = len(command.flags) + len(command.unknown)
        yield from _section("the command", [*rows, ("flags", f"{count}; --flags explains each")])
        return
    # the owner's note is about CK's kernels
    owners = (whose.partition(";")[0] if command.is_cuda else whose for _, whose in command.headers)
    rows += [("headers", f"{whose} ({count} -I)") for whose, count in Counter(owners).items()]
    yield from _section("the command", rows)
    for setter in dict.fromkeys(flag.set_by for flag in command.flags):
        by_meaning: dict[str, list[str]] = {}
        for flag in command.flags:
            if flag.set_by == setter:
                by_meaning.setdefault(flag.meaning, []).append(flag.text)
        yield from _section(f"flags set by {setter}" if setter else "other flags", ())
        for meaning, flags in by_meaning.items():
            beside = flags[-1] if len(flags[-1]) <= flag_width else ""  # a longer flag has a line of its own
            yield from (_Paragraph(text, "  ", "    ") for text in flags if text != beside)
            yield _row(beside, meaning, flag_width)
    if command.unknown:
        yield from _section("unknown flags", [("", " ".join(command.unknown))])


def _list(title: str, lines: Iterable[str]) -> Iterator[_Paragraph]:
    if rows := list(lines):
        yield from _section(title, ())
        yield from (_Paragraph(line, "  - ", "    ") for line in rows)


def _section(title: str, rows: Iterable[tuple[str, str]]) -> Iterator[_Paragraph]:
    yield from (_Paragraph(""), _Paragraph(title, style=_HEAD))
    yield from _rows(rows)


def _rows(rows: Iterable[tuple[str, str]]) -> Iterator[_Paragraph]:
    last = ""
    for label, text in rows:
        yield _row(label if label != last else "", text, _LABEL, _ROW_STYLES.get(label, ""))
        last = label


def _row(label: str, text: str, width: int, style: str = "") -> _Paragraph:
    return _Paragraph(text, f"  {label:<{width}} ", " " * (width + 3), style)


def as_json(explanation: Explanation) -> Document:
    """Return the document of ``--json``; docs/reference/explain.md describes each key.

    Every key is always present; unknown values are null or empty.
    """
    build_log, kernel, remaining = explanation.build_log, explanation.kernel, explanation.remaining_time
    progress = build_log.progress
    return {
        "format": FORMAT,
        "log": explanation.log_name,
        "lines": build_log.line_count,
        "kind": build_log.kind,
        "state": build_log.state,
        "torch": build_log.torch or None,
        "archs": [{"arch": arch, "products": product_names(arch) or None} for arch in build_log.archs],
        "progress": progress and {name: getattr(progress, name) for name in _OF_PROGRESS},
        "remaining_time": remaining and {**asdict(remaining), "jobs_source": explanation.jobs_source},
        "cause": asdict(build_log.cause) if build_log.cause else None,
        "failed_objects": build_log.failed_objects,
        "kernel": {**asdict(kernel), "family": kernel.family} if kernel else None,
        "command": asdict(build_log.command) if build_log.command else None,
        "reasons": list(explanation.reasons),
        "advice": list(explanation.advice),
        "wheel": explanation.wheel or None,
    }
