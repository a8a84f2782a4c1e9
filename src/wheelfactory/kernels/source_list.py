"""List the kernel sources that a release's setup.py generates, by running upstream's generator.

The names and number of sources change with each release, so nothing here lists them.
"""

from __future__ import annotations

import ast
import json
import shlex
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from wheelfactory.build.clean_environ import clean_environ
from wheelfactory.build.sources import Source, fetch_source, unpack_source
from wheelfactory.core.errors import InputError, SourceError
from wheelfactory.core.files import scratch_dir, write_atomic
from wheelfactory.core.process import capture
from wheelfactory.core.progress import logger
from wheelfactory.kernels.source_digest import digest_kernel_sources
from wheelfactory.matrix.facts import FlashAttn

SOURCE_LIST_FORMAT = 2
"""Format number of a cached source list."""
GENERATOR = "generate.py"
COMPILED_PATTERN = "fmha_*wd*.cpp"
"""The generated files that setup.py compiles (its own glob, in every release from 2.6.3 to 2.8.3)."""


@dataclass(frozen=True)
class SourceList:
    """The kernel sources of a release."""

    sources: tuple[str, ...]
    """Sorted names without extension: setup.py and hipify change it to ``.cu`` and ``.hip``."""
    total_bytes: int
    """Disk space of the unpacked sources and everything generated from them."""
    digest: str
    """What the kernels are compiled from (`digest_kernel_sources`)."""


def list_sources(version: str, release: FlashAttn, cache: Path, environ: Mapping[str, str]) -> SourceList:
    """List the kernel sources of a flash-attn release, cached in `cache` by the identity of its sources.

    `environ` is the clean environment for git, PyPI and the generator. Raises `SourceError` if the sources cannot be
    fetched, or the generator commands cannot be read from setup.py, and `InputError` if their digest is not the
    release's `kernel_sources`.
    """
    cached = (
        _read_list(_list_path(cache, release.source_pin))
        if release.sdist or (release.git and release.git.commit)
        else None
    )
    # a wrong digest may be of the cache, so only that of the sources themselves is refused
    if cached and release.kernel_sources in (None, cached.digest):
        return cached
    source = fetch_source(version, release, cache / "sources", environ)
    source_list = _generate_sources(version, source, cache, environ)
    if release.kernel_sources not in (None, source_list.digest):
        raise InputError(
            "wrong kernel-sources in the matrix",
            f"flash-attn {version}: expected {release.kernel_sources}, found {source_list.digest}",
            "write the digest that was found (scripts/refresh_kernel_sources.py does), or remove kernel-sources",
        )
    write_source_list(source_list, source.identity, cache)
    return source_list


def list_planned_sources(version: str, release: FlashAttn, cache: Path, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The names of the kernel sources that a build of a release must compile; empty if they cannot be listed.

    `environ` is the factory's own environment. Raises `InputError` for a wrong digest in the matrix, as `list_sources`.
    """
    try:
        return list_sources(version, release, cache, clean_environ(environ)).sources
    except SourceError as error:
        # not an error here: the build reports a problem with its sources
        logger.info("cannot list the kernel sources, so the build is not compared with them: %s", error)
        return ()


def write_source_list(source_list: SourceList, identity: str, cache: Path) -> None:
    """Cache the list of sources of this identity (``sha256:...`` or ``commit:...``)."""
    document = {
        "format": SOURCE_LIST_FORMAT,
        "bytes": source_list.total_bytes,
        "digest": source_list.digest,
        "sources": source_list.sources,
    }
    write_atomic(_list_path(cache, identity), json.dumps(document, indent=1).encode() + b"\n")


def _list_path(cache: Path, identity: str) -> Path:
    return cache / "source-lists" / f"{identity.replace(':', '-')}.json"


def _read_list(path: Path) -> SourceList | None:
    """Read a cached list; None if it is missing, damaged or of another format."""
    try:
        document = json.loads(path.read_bytes())
        is_current, sources, size = document["format"] == SOURCE_LIST_FORMAT, document["sources"], document["bytes"]
        digest = document["digest"]
    except (OSError, ValueError, TypeError, KeyError):
        return None
    is_valid = isinstance(size, int) and isinstance(sources, list) and all(isinstance(name, str) for name in sources)
    is_valid = is_valid and isinstance(digest, str)
    return SourceList(tuple(sources), size, digest) if is_current and is_valid and sources else None


def _generate_sources(version: str, source: Source, cache: Path, environ: Mapping[str, str]) -> SourceList:
    # setup.py is parsed, not run, because it would import torch
    logger.info("generating the kernel sources of flash-attn %s", version)
    with scratch_dir(cache) as scratch:
        tree = unpack_source(source, scratch / "tree")
        generated = tree / "build"
        generated.mkdir(exist_ok=True)  # setup.py makes it too
        commands = parse_generator_commands((tree / "setup.py").read_text(encoding="utf-8"), version)
        for command in commands:
            hint = "the generator is part of the sources: check that they are complete"
            capture(command, failure=SourceError, environ=environ, cwd=tree, hint=hint)
        names = sorted(path.stem for path in generated.iterdir() if fnmatchcase(path.name, COMPILED_PATTERN))
        if not names:
            raise SourceError("no kernel sources generated by flash-attn", version, "check its sources in matrix.yaml")
        total_bytes = sum(path.stat().st_size for path in tree.rglob("*") if path.is_file())
        generator = next(word for word in commands[0] if word.endswith(GENERATOR))
        return SourceList(tuple(names), total_bytes, digest_kernel_sources(tree, generator))


def parse_generator_commands(setup: str, version: str) -> tuple[tuple[str, ...], ...]:
    """Parse the commands with which a setup.py runs the generator, in order, with default environment variables.

    Raises `SourceError` if there is none, or if an argument is computed.
    """
    try:
        found = tuple(_commands(ast.parse(setup)))
        if not found:
            raise _NotPlainError(f"setup.py never runs {GENERATOR}")
    except (SyntaxError, _NotPlainError) as error:
        raise SourceError(
            "cannot list the kernel sources of flash-attn",
            f"{version}: {error}",
            "its setup.py calls the generator in an unknown way: extend kernels/source_list.py",
        ) from None
    return found


class _NotPlainError(Exception):
    """An argument is known only when setup.py runs."""


def _commands(tree: ast.Module) -> Iterator[tuple[str, ...]]:
    """The arguments of each ``subprocess.run([...])`` or ``os.system("...")`` that names the generator."""
    names = {
        target.id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args)
    for call in calls:
        command = call.args[0]
        is_command = ast.unparse(call.func).startswith(("subprocess.", "os.system"))
        if not is_command or GENERATOR not in ast.unparse(command):
            continue
        if isinstance(command, ast.List):
            yield tuple(_text(word, names) for word in command.elts)
        else:
            yield tuple(shlex.split(_text(command, names)))


def _text(node: ast.expr, names: Mapping[str, ast.expr]) -> str:
    """Evaluate a literal, an f-string, an assigned name, or the default of an environment variable to text."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part, names) for part in node.values)
    if isinstance(node, ast.FormattedValue) and node.conversion == -1 and node.format_spec is None:
        return _text(node.value, names)
    if isinstance(node, ast.Name) and node.id in names:
        others = {
            name: value for name, value in names.items() if name != node.id
        }  # so that a name defined by itself does not recurse forever
        return _text(names[node.id], others)
    if ast.unparse(node) == "sys.executable":
        return sys.executable
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("os.getenv", "os.environ.get") and len(node.args) == 2:
        return _text(node.args[1], names)
    raise _NotPlainError(f"its setup.py computes an argument of {GENERATOR}: {ast.unparse(node)}")
