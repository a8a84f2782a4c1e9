"""Tells a person on stderr what runs: bars on a terminal, plain lines in a pipe or a CI log (by rich)."""

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


class ProgressPart(Protocol):
    """Says how far the running step is."""

    def __call__(self, done: int, total: int, told: str = "", /) -> None:
        """`done` of `total`, in any unit (bytes, objects); `told` is what else there is to say, as the time left."""


def ignore_progress(_done: int, _total: int, _told: str = "") -> None:
    """A `Part` for what nobody waits for."""


SECONDS_BETWEEN_LINES = 30.0
"""How often a long step says how far it is where there is no terminal."""


logger = logging.getLogger("wheelfactory")
"""What a stage says with `logger.info` of a long thing it begins is shown while the command's steps run."""


class _Announcements(logging.Handler):
    """Shows what stages announce, below the step that runs and above the bars."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        self._console.print(f"    {record.getMessage()}", markup=False, highlight=False)


@contextmanager
def log_to_stderr(console: Console | None = None) -> Iterator[None]:
    """Show what stages announce, for a command that is short unless a stage begins something long."""
    handler = _Announcements(console or _stderr())
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
        self._counting = threading.Lock()  # steps may run beside each other
        self._bars: Progress | None = None
        self._all: TaskID | None = None

    def __enter__(self) -> Steps:
        self._open.enter_context(log_to_stderr(self._console))
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            self._bars = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),  # a step that cannot count has no total, and says 0/?
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                console=self._console,
                transient=True,
                redirect_stdout=False,  # results on stdout are for whoever reads it, never for the terminal's stderr
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
    def step(self, text: str) -> Iterator[ProgressPart]:
        """Run one step under the name `text`; what is yielded takes its parts, if it can count them."""
        start = time.monotonic()
        bar = self._bars.add_task(text, total=None) if self._bars else None
        if not self._bars:
            self._console.print(f"[{self._done + 1}/{self._total}] {text}")
        ending = "failed after "
        try:
            yield self._parts(bar, text, start)
            ending = ""
        finally:
            with self._counting:
                self._done += 1
                done = self._done
            self._console.print(f"[{done}/{self._total}] {text}: {ending}{time.monotonic() - start:.1f} s")
            if self._bars and bar is not None and self._all is not None:
                self._bars.remove_task(bar)
                self._bars.advance(self._all)

    def _parts(self, bar: TaskID | None, text: str, start: float) -> ProgressPart:
        said = start

        def part(done: int, total: int, told: str = "") -> None:
            nonlocal said
            now = time.monotonic()
            if self._bars and bar is not None:
                self._bars.update(bar, completed=done, total=total, description=f"{text} {told}".rstrip())
            elif now - said > SECONDS_BETWEEN_LINES and done:
                said = now
                left = told or f"about {(now - start) / done * (total - done):.0f} s left"
                self._console.print(f"    {text}: [{done}/{total}] {now - start:.0f} s, {left}")

        return part
