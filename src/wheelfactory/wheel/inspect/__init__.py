"""Inspect a wheel, a library or an installed distribution of any project."""
