"""The total time of a download, whose socket timeout starts anew with each byte that a server sends.

Part of doctor.py, so it uses only the standard library of Python 3.9.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

DOWNLOAD_TIMEOUT_S = 300.0

_T = TypeVar("_T")


def call_within(limit: Callable[[], float], call: Callable[[], _T]) -> _T:
    """Return the result of a call. Raises `TimeoutError` if it takes more seconds than `limit` returns meanwhile.

    The call is then left to its own end, in a daemon thread: nothing else interrupts name servers, TLS and headers
    that come byte by byte.
    """
    answer: Future[_T] = Future()
    start = time.monotonic()

    def work() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:  # raised again by the caller
            answer.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    while not answer.done():
        seconds = limit()
        if time.monotonic() - start >= seconds:
            raise TimeoutError(f"took longer than {seconds:.0f} s")
        wait([answer], start + seconds - time.monotonic())
    return answer.result()
