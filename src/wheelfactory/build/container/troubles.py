"""What a container engine complains of -> an error that says what to do about it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from docker.errors import DockerException
from requests.exceptions import RequestException
from urllib3.exceptions import HTTPError

from wheelfactory.core.errors import BuildError

ENGINE_ERRORS = (DockerException, RequestException, HTTPError, OSError)
"""What the SDK lets through when an engine complains or goes away."""


@dataclass(frozen=True)
class Known:
    """A complaint by what is said in it, and what a person is told."""

    pattern: str
    what: str
    hint: str


_KNOWN = (
    Known(
        r"PermissionError",
        "no permission to use the container engine",
        "add yourself to its group (sudo usermod -aG docker $USER, then log in again), or use --executor local",
    ),
    Known(
        r"FileNotFoundError|ConnectionRefusedError",
        "no container engine answers",
        "start one (sudo systemctl start docker, or podman system service), set DOCKER_HOST, or use --executor local",
    ),
    Known(
        r"Connection (?:aborted|broken)|IncompleteRead|RemoteDisconnected|BrokenPipe|ConnectionResetError"
        r"|Read timed out",
        "the container engine went away",
        "see why it stopped (journalctl -u docker), and run the same command again: what was compiled is kept",
    ),
    Known(
        r"No such container",
        "the container was removed",
        "somebody removed it; run the same command again: what was compiled is kept",
    ),
    Known(
        r"no space left on device|ENOSPC|disk quota exceeded",
        "no room for the image",
        "make room (docker system prune), move the engine's storage, or take the slim image: --slim",
    ),
    Known(
        r"toomanyrequests|rate limit|Too Many Requests|\b429\b",
        "the registry lets nobody pull so often",
        "log in to it (docker login), or wait; the layers that came are kept",
    ),
    Known(
        r"manifest unknown|manifest for .* not found|not found: manifest|repository does not exist|No such image"
        r"|name unknown|image not known|failed to resolve reference .*: not found",
        "no such image",
        "correct the tag in matrix.yaml: scripts/refresh_images.py says which of them the registry has",
    ),
    Known(
        r"unauthorized|authentication required|no basic auth credentials|(?<!permission )denied: ",
        "the registry does not give the image",
        "correct the tag in matrix.yaml, or log in (docker login)",
    ),
    Known(
        r"verification failed for digest|does not match provided manifest digest"
        r"|unexpected commit digest",
        "the registry gives something else than what its digest says",
        "run the same command again; if it stays so, find out why before changing the digest in matrix.yaml",
    ),
    Known(
        r"unexpected EOF|: EOF\b|connection reset|i/o timeout|TLS handshake|no such host|network is unreachable"
        r"|dial tcp|Temporary failure in name resolution|context deadline exceeded|Client\.Timeout",
        "the network was lost",
        "run the same command again when it is back: the layers that came are kept",
    ),
)
"""The first that fits is told; texts are those of Docker 20 to 28, of podman 4 and 5, of the Go they are written in,
and of Python and the SDK, which come first: an engine says some of the same of a registry."""

_OTHER = Known("", "the container engine refused", "the engine's own log tells more (journalctl -u docker)")


def trouble(error: object, which: str) -> BuildError:
    """The error to raise for what an engine or its SDK complained of while it was asked for `which`."""
    said = " ".join(str(getattr(error, "strerror", None) or error).split())
    seen = f"{said} {error!r}"
    known = next((known for known in _KNOWN if re.search(known.pattern, seen, re.IGNORECASE)), _OTHER)
    return BuildError(known.what, f"{which} ({_short(said)})", known.hint)


def _short(said: str) -> str:
    """The innermost of the reasons that are nested in an error of the SDK."""
    found = re.findall(r"\w+Error\(\d+, '([^']+)'\)", said) or re.findall(r'\("(.+)"\)$', said)
    return str(found[-1]) if found else said[-300:]
