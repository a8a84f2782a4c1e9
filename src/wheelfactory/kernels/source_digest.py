"""Compute the digest of what a release's CK kernels are compiled from; equal digests make one kernel set."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

from wheelfactory.core.digest import files_sha256

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
    calls = "\n".join(_generator_statements(setup, Path(generator).name))
    return files_sha256([("setup.py", calls.encode()), *_read_files(tree, [library, tree / _GENERATED])])


def _read_files(tree: Path, folders: Sequence[Path]) -> Iterator[tuple[str, bytes]]:
    for folder in folders:
        # running the generator leaves .pyc files, which differ from Python to Python
        files = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")
        for name, path in sorted((path.relative_to(tree).as_posix(), path) for path in files):
            yield name, path.read_bytes()


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
