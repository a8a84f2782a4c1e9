"""A GitHub repository's releases as a place to publish to: wheels by tag, kernel archives by name."""

from __future__ import annotations

from wheelfactory.publish.github.publisher import GitHubPublisher, Notes, no_notes
from wheelfactory.publish.github.shelf import GitHubShelf

__all__ = ["GitHubPublisher", "GitHubShelf", "Notes", "no_notes"]
