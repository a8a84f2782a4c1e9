"""Publish to the releases of a GitHub repository: wheels by tag, kernel archives by name."""
