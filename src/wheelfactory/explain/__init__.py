"""Explain a build log: progress, current kernel, remaining time, cause of a failure, and what to change."""
