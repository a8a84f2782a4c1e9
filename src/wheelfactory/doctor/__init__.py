"""Examine a user's machine: print the matching wheel, explain why none matches, or diagnose a broken install.

Uses only the standard library of Python 3.9. `site.doctor_file` also publishes it as one file beside an index.
"""
