"""Progress on stderr: bars on a terminal, plain lines in a pipe or a CI log."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


class ProgressCallback(Protocol):
    """Reports the progress of the running step."""

    def __call__(self, done: int, total: int, note: str = "", /) -> None:
        """`done` of `total`, in any unit (bytes, objects); `note` replaces the estimate of the time left."""


def ignore_progress(_done: int, _total: int, _note: str = "") -> None:
    """A `ProgressCallback` that shows nothing."""


SECONDS_BETWEEN_LINES = 30.0
"""The interval of progress lines where there is no terminal."""


logger = logging.getLogger("wheelfactory")
"""Stages announce slow operations with `logger.info`; `log_to_stderr` shows them."""


class _StderrHandler(logging.Handler):
    """Prints log messages between the steps and the bars, which a handler without the console would overwrite."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        self._console.print(f"    {record.getMessage()}", markup=False, highlight=False)


@contextmanager
def log_to_stderr(console: Console | None = None) -> Iterator[None]:
    """Show the announcements of stages on stderr, for a command without `Steps`."""
    handler = _StderrHandler(console or _stderr())
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def _stderr() -> Console:
    return Console(stderr=True, highlight=False, markup=False, soft_wrap=True)


class Steps:
    """The numbered steps of one command; use as a context manager around them."""

    def __init__(self, total: int, console: Console | None = None) -> None:
        self._console = console or _stderr()
        self._open = ExitStack()
        self._total = total
        self._done = 0
        self._counting = threading.Lock()  # steps can run in parallel
        self._bars: Progress | None = None
        self._all: TaskID | None = None

    def __enter__(self) -> Steps:
        self._open.enter_context(log_to_stderr(self._console))
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            self._bars = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),  # a step that reports no progress has no total, shown as 0/?
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                console=self._console,
                transient=True,
                redirect_stdout=False,  # rich would print results to stderr, and a reader of stdout would miss them
            )
            self._bars.start()
            self._all = self._bars.add_task("steps", total=self._total)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bars:
            self._bars.stop()
        self._open.close()

    @contextmanager
    def step(self, text: str) -> Iterator[ProgressCallback]:
        """Run the block as one step named `text`; yield the function that reports its progress."""
        start = time.monotonic()
        bar = self._bars.add_task(text, total=None) if self._bars else None
        if not self._bars:
            self._console.print(f"[{self._done + 1}/{self._total}] {text}")
        outcome = "failed after "
        try:
            yield self._progress_callback(bar, text, start)
            outcome = ""
        finally:
            with self._counting:
                self._done += 1
                done = self._done
            self._console.print(f"[{done}/{self._total}] {text}: {outcome}{time.monotonic() - start:.1f} s")
            if self._bars and bar is not None and self._all is not None:
                self._bars.remove_task(bar)
                self._bars.advance(self._all)

    def _progress_callback(self, bar: TaskID | None, text: str, start: float) -> ProgressCallback:
        last_line = start

        def part(done: int, total: int, note: str = "") -> None:
            nonlocal last_line
            now = time.monotonic()
            if self._bars and bar is not None:
                self._bars.update(bar, completed=done, total=total, description=f"{text} {note}".rstrip())
            elif now - last_line > SECONDS_BETWEEN_LINES and done:
                last_line = now
                left = note or f"about {(now - start) / done * (total - done):.0f} s left"
                self._console.print(f"    {text}: [{done}/{total}] {now - start:.0f} s, {left}")

        return part
