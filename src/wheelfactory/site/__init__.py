"""Generate from matrix and manifest: the index, search page, release notes, coverage and doctor.py."""
