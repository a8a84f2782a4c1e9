"""A user's machine in; the wheel that fits it, or why none does, and what is wrong with the one it has, out.

Needs nothing but the standard library of Python 3.9, and is also served as one file beside an index (`single_file`).
"""
