"""Progress on stderr: bars on a terminal, plain lines in a pipe or a CI log."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from types import TracebackType
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TaskID, TimeElapsedColumn
from rich.table import Column
from rich.text import Text

from wheelfactory.core.terminal import is_interactive, stderr_console, wrap_lines
from wheelfactory.core.wrap import as_printable


class ProgressCallback(Protocol):
    """Reports the progress of the running step."""

    def __call__(self, done: int, total: int, note: str = "", /) -> None:
        """`done` of `total`, in any unit (bytes, objects); `note` replaces the estimate of the time left."""


def ignore_progress(_done: int, _total: int, _note: str = "") -> None:
    """A `ProgressCallback` that shows nothing."""


_WIDE = 100
"""Terminals with at least this many columns also show the elapsed time; the name of a cell has up to 48."""

SECONDS_BETWEEN_LINES = 30.0
"""The interval of progress lines where there is no terminal."""


logger = logging.getLogger("wheelfactory")
"""Stages announce slow operations with `logger.info`; `log_to_stderr` shows them."""


class _StderrHandler(logging.Handler):
    """Prints log messages between the steps and the bars, which a handler without the console would overwrite."""

    def __init__(self, console: Console, bars: Progress | None) -> None:
        super().__init__()
        self.console = console
        self.bars = bars

    def emit(self, record: logging.LogRecord) -> None:
        for line in wrap_lines([f"    {record.getMessage()}"], self.console):
            self.console.print(line, markup=False, highlight=False)


@contextmanager
def log_to_stderr(console: Console | None = None, bars: Progress | None = None) -> Iterator[None]:
    """Show the announcements of stages on stderr, for a command without `Steps`; `bars` also show their progress."""
    handler = _StderrHandler(console or stderr_console(), bars)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)


@contextmanager
def announced_progress(text: str) -> Iterator[ProgressCallback]:
    """Show the progress of a slow operation of a stage where its announcements are shown; yield its callback."""
    handler = next((found for found in logger.handlers if isinstance(found, _StderrHandler)), None)
    if handler is None:
        yield ignore_progress
        return
    with ExitStack() as stack:
        bars = handler.bars
        if bars is None and is_interactive(handler.console):
            bars = stack.enter_context(_new_bars(handler.console))
        # hidden except while it has something to count: pip reports no progress of what it finds in its cache
        task = bars.add_task(f"    {text}", total=None, visible=False, start=False) if bars else None
        try:
            report = _progress_callback(handler.console, bars, task, f"    {text}")

            def show(done: int, total: int, note: str = "") -> None:
                if bars and task is not None:
                    bars.start_task(task)
                    bars.update(task, visible=done < total)
                report(done, total, note)

            yield show
        finally:
            if bars and task is not None:
                bars.remove_task(task)


class _CountColumn(MofNCompleteColumn):
    """The units done and their total; empty for a step without a total, which rich shows as 0/?."""

    def render(self, task: Task) -> Text:
        return super().render(task) if task.total is not None else Text("")


class _TimeLeftColumn(ProgressColumn):
    """The time left at the mean speed so far. rich uses the speed between the last two reports, which varies widely."""

    def render(self, task: Task) -> Text:
        if not (task.total and task.completed and task.elapsed):
            return Text("")
        left_s = task.elapsed / task.completed * (task.total - task.completed)
        return Text(f"about {timedelta(seconds=round(left_s))} left", style="progress.remaining")


class _NameColumn(ProgressColumn):
    """The name of a step and its note, cut where a narrow terminal has no room; the numbers are never cut."""

    def render(self, task: Task) -> Text:
        return Text(as_printable(task.description), no_wrap=True, overflow="ellipsis")


def _new_bars(console: Console) -> Progress:
    whole = Column(no_wrap=True)  # on a narrow terminal rich shortens the other columns
    elapsed = [TimeElapsedColumn(whole)] if console.width >= _WIDE else []
    return Progress(
        _NameColumn(),
        BarColumn(bar_width=max(8, min(24, console.width - 80)), table_column=whole),
        _CountColumn(table_column=whole),
        *elapsed,
        _TimeLeftColumn(whole),
        console=console,
        transient=True,
        redirect_stdout=False,  # rich would print results to stderr, and a reader of stdout would miss them
    )


def _progress_callback(console: Console, bars: Progress | None, task: TaskID | None, text: str) -> ProgressCallback:
    """Report to the bar `task`, or without bars as a line every `SECONDS_BETWEEN_LINES`."""
    start = last_line = time.monotonic()

    def report(done: int, total: int, note: str = "") -> None:
        nonlocal last_line
        now = time.monotonic()
        if bars and task is not None:
            bars.update(task, completed=done, total=total, description=f"{text} {note}".rstrip())
        elif now - last_line > SECONDS_BETWEEN_LINES and (note or done):
            last_line = now
            left = note or f"about {(now - start) / done * (total - done):.0f} s left"
            console.print(as_printable(f"    {text.strip()}: [{done}/{total}] {now - start:.0f} s, {left}"))

    return report


class Steps:
    """The numbered steps of one command; use as a context manager around them."""

    def __init__(self, total: int, console: Console | None = None) -> None:
        self._console = console or stderr_console()
        self._open = ExitStack()
        self._total = total
        self._done = 0
        self._counting = threading.Lock()  # steps can run in parallel
        self._bars: Progress | None = None
        self._all: TaskID | None = None

    def __enter__(self) -> Steps:
        if is_interactive(self._console):
            self._bars = self._open.enter_context(_new_bars(self._console))
            self._all = self._bars.add_task("steps", total=self._total)
        self._open.enter_context(log_to_stderr(self._console, self._bars))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    @contextmanager
    def step(self, text: str) -> Iterator[ProgressCallback]:
        """Run the block as one step named `text`; yield the function that reports its progress."""
        start, text = time.monotonic(), as_printable(text)
        bar = self._bars.add_task(text, total=None) if self._bars else None
        if not self._bars:
            self._console.print(f"[{self._done + 1}/{self._total}] {text}")
        outcome = "failed after "
        try:
            yield _progress_callback(self._console, self._bars, bar, text)
            outcome = ""
        finally:
            with self._counting:
                self._done += 1
                done = self._done
            self._console.print(f"[{done}/{self._total}] {text}: {outcome}{time.monotonic() - start:.1f} s")
            if self._bars and bar is not None and self._all is not None:
                self._bars.remove_task(bar)
                self._bars.advance(self._all)
