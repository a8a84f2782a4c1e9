"""How a program that builds tells a person something, through the log that nobody else reads meanwhile."""

from __future__ import annotations

NOTE = "wheelfactory: "
"""Begins a line of a log that is shown while the build runs."""
