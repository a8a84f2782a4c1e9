"""Compute the digest of what a release's CK kernels are compiled from; equal digests make one kernel set."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from wheelfactory.core.digest import files_sha256
from wheelfactory.kernels.compiler.key import list_source_files

_GENERATED = "build"


def digest_kernel_sources(tree: Path, generator: str) -> str:
    """Digest the sources in `tree`, after setup.py's calls of `generator` (a path in the tree): 64 hex digits.

    It covers everything of a release that can reach a kernel's object:

    - the folder below ``csrc`` that has the generator: every header folder that setup.py names for kernels is in it
    - every generated file, so also which files there are
    - the part of setup.py that calls the generator and sets the compile flags

    The compiler, ROCm, the archs and the C++ ABI are not of the release. A release that breaks one of these assumptions
    is still safe: the key of the store has the actual headers and flags, and decides what is linked.
    """
    library = tree.joinpath(*Path(generator).parts[:2])
    setup = (tree / "setup.py").read_text(encoding="utf-8")
    sources = [("setup.py", "\n".join(_generator_statements(setup, Path(generator).name)).encode())]
    for folder in (library, tree / _GENERATED):
        names = sorted((path.relative_to(tree).as_posix(), path) for path in list_source_files([folder]))
        sources += [(name, path.read_bytes()) for name, path in names]
    return files_sha256(sources)


def _generator_statements(setup: str, generator: str) -> Iterator[str]:
    """The text of the top-level statements of setup.py that name the generator, without earlier branches of an if."""
    # the branch for CUDA changes between releases whose kernels for ROCm are the same
    statements: list[ast.stmt] = list(ast.parse(setup).body)
    for statement in statements:
        if not _mentions(statement, generator):
            continue
        if isinstance(statement, ast.If) and not any(_mentions(inner, generator) for inner in statement.body):
            statements += statement.orelse
        else:
            # not ast.unparse, whose text differs from Python to Python
            yield ast.get_source_segment(setup, statement) or ""


def _mentions(statement: ast.stmt, generator: str) -> bool:
    return generator in ast.unparse(statement)
