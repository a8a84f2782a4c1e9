"""The state of the fake GitHub: its repository, the requests it received, and the request to fail at."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from fake_github.contract import Contract
from fake_github.faults import Fault
from fake_github.repository import FakeRelease, Repository

TOKEN = "ghs_secretOfTheTests"  # noqa: S105 (opens nothing: the stand-in alone knows it)


class Clock:
    """A clock that advances only during sleep: seconds since 1970, and the recorded pauses."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0
        self.pauses: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        """Advance the time without waiting."""
        self.pauses.append(seconds)
        self.now += seconds


@dataclass(frozen=True)
class Asked:
    """One request, with a digest of its body."""

    role: str
    method: str
    path: str
    query: dict[str, str]
    size: int
    sha256: str
    body: bytes | None

    @property
    def is_upload(self) -> bool:
        return self.method == "POST" and self.path.endswith("/assets")

    @property
    def line(self) -> str:
        name = self.query.get("name")
        return f"{self.method} {self.path}" + (f" {name}" if name else "")


@dataclass
class FakeGitHub:
    """A GitHub with one repository, a record of its requests, and one injected fault."""

    clock: Clock
    repository: Repository = field(default_factory=Repository)
    calls: list[str] = field(default_factory=list)
    downloads: list[str] = field(default_factory=list)
    """Paths downloaded from the public address."""
    violations: list[str] = field(default_factory=list)
    storage: str = ""
    per_page: int = 100
    rights: str = "write"
    moved: bool = False
    """Whether the repository was renamed."""
    left: int = 5000
    """Requests left until the primary rate limit."""
    reset: float = 0.0
    failing: tuple[int, Fault] | None = None
    """The number of a request, from 0, and the fault that happens there once."""
    victim: Callable[[], int] | None = None
    """The process that a fault kills."""
    before: Callable[[Asked], None] | None = None
    """Called before each response, to simulate a concurrent client."""
    lag_s: float = 0.0
    """The age of lists in seconds. Single releases and assets are always current."""
    history: list[tuple[float, dict[int, FakeRelease]]] = field(default_factory=list)
    """The releases after each change, with its time, while lists lag."""
    lock: threading.RLock = field(default_factory=threading.RLock)
    contract: Contract = field(default_factory=Contract)

    def fresh(self) -> FakeGitHub:
        """Reset everything except the addresses and the cached contract."""
        old = self.repository
        self.repository = Repository(old.api, old.uploads, old.web)
        self.calls, self.failing, self.victim, self.before = [], None, None, None
        self.lag_s, self.history = 0.0, []
        self.per_page, self.rights, self.left, self.moved = 100, "write", 5000, False
        self.clock.pauses.clear()
        return self

    def lag(self, seconds: float) -> None:
        """From now on, lists show changes this many seconds later."""
        self.lag_s = seconds
        self.history = [(0.0, copy.deepcopy(self.repository.releases))]

    def remember(self) -> None:
        """Keep the state after a change, for lists that lag."""
        if self.lag_s:
            self.history.append((self.clock.now, copy.deepcopy(self.repository.releases)))

    def listed(self) -> dict[int, FakeRelease]:
        """The releases as lists show them."""
        if not self.lag_s:
            return self.repository.releases
        return next(state for time, state in reversed(self.history) if time <= self.clock.now - self.lag_s)

    def environ(self, token: str | None = TOKEN) -> dict[str, str]:
        """The environment of a publishing process."""
        return {"GITHUB_API_URL": self.repository.api} | ({"GITHUB_TOKEN": token} if token else {})

    def fault(self, asked: Asked) -> Fault | None:
        """Count this request; return the fault that happens at it."""
        self.calls.append(asked.line)
        if self.failing is None or self.failing[0] != len(self.calls) - 1:
            return None
        (_, fault), self.failing = self.failing, None
        return fault
