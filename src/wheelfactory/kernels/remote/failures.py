"""What a failed call to a server means: try again, do without one result, do without the cluster, or stop."""

from __future__ import annotations

import time
from dataclasses import dataclass

import grpc
import grpc.aio

from wheelfactory.core.errors import InputError
from wheelfactory.kernels.remote.settings import Remote

_CODE = grpc.StatusCode
_REFUSED = (_CODE.UNAUTHENTICATED, _CODE.PERMISSION_DENIED)
_BUSY = (_CODE.RESOURCE_EXHAUSTED,)
_AWAY = (_CODE.UNAVAILABLE, _CODE.DEADLINE_EXCEEDED, _CODE.ABORTED, _CODE.CANCELLED)


class ClusterLostError(Exception):
    """The cluster cannot be used any more; the message says why."""


class ResultError(Exception):
    """The cluster made no usable object of one compile; the message says why."""


class MissingInputsError(ResultError):
    """The server has removed files that the compile needs."""


@dataclass
class Attempts:
    """The attempts of one call.

    Each call has its own: a server may answer the heartbeat while its storage is away, so an answer to one call says
    nothing about another.
    """

    remote: Remote
    _failing_since: float | None = None

    def note_answer(self) -> None:
        """The server has answered."""
        self._failing_since = None

    def note_failure(self, error: grpc.aio.AioRpcError) -> None:
        """Return if it makes sense to try again.

        Raises `InputError` if the server refuses access, `ClusterLostError` if it has not answered for `Remote.away_s`
        or was busy for `Remote.no_worker_s`, and `ResultError` if trying again would give the same error.
        """
        code, text = error.code(), error.details() or error.code().name
        if code in _REFUSED:
            hint = "write a valid token into the file of --remote-token; compiled kernels are kept: run it again"
            raise InputError("the server refuses access", f"{self.remote.address}: {text}", hint)
        if code not in (*_AWAY, *_BUSY):
            raise result_error(code.value[0], f"{code.name}: {text}")
        now = time.monotonic()
        self._failing_since = self._failing_since or now
        failing_s = now - self._failing_since
        if code in _BUSY and failing_s >= self.remote.no_worker_s:
            raise ClusterLostError(f"it was busy for {self.remote.no_worker_s:.0f} s: {text}")
        if code in _AWAY and failing_s >= self.remote.away_s:
            raise ClusterLostError(f"it did not answer for {self.remote.away_s:.0f} s: {text}")


def result_error(code: int, text: str) -> ResultError:
    """The error for an answer with this code of gRPC: the API prescribes two codes for missing files."""
    is_missing = code in (_CODE.FAILED_PRECONDITION.value[0], _CODE.NOT_FOUND.value[0])
    return MissingInputsError(text) if is_missing else ResultError(text)
