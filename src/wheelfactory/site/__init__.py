"""What people and installers read, made from matrix and manifest: index, search page, notes, coverage, doctor.py."""
