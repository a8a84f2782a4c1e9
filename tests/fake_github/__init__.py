"""GitHub's releases API on loopback: stateful, validated against GitHub's OpenAPI description, with fault injection."""

from __future__ import annotations

from fake_github.faults import FAULTS, Fault
from fake_github.github import TOKEN, Clock, FakeGitHub
from fake_github.repository import Repository, sanitized
from fake_github.server import running_github

__all__ = ["FAULTS", "TOKEN", "Clock", "FakeGitHub", "Fault", "Repository", "running_github", "sanitized"]
