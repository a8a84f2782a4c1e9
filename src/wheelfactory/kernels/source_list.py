"""List the kernel sources that a release's build compiles, by running upstream's generator as its setup.py does.

The names and number of sources change with each release, so nothing here lists them.
"""

from __future__ import annotations

import ast
import json
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from wheelfactory.build.clean_environ import clean_environ
from wheelfactory.build.sources import Source, fetch_source, unpack_source
from wheelfactory.core.digest import content_key
from wheelfactory.core.errors import InputError, SourceError
from wheelfactory.core.files import scratch_dir, write_atomic
from wheelfactory.core.process import capture
from wheelfactory.core.progress import logger
from wheelfactory.kernels.source_digest import digest_kernel_sources
from wheelfactory.kernels.trim.filtered_run import (
    FilteredCommand,
    UnprovedError,
    filter_commands,
    filter_environ,
    require_proof,
)
from wheelfactory.matrix.facts import FlashAttn, GeneratorFilter

SOURCE_LIST_FORMAT = 3
"""Format number of a cached source list. Increment it when the proof of filters changes, too."""
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
    """What the kernels are compiled from, before the filters (`digest_kernel_sources`)."""
    filtered: tuple[FilteredCommand, ...] = ()
    """The generator commands that a build must run with a filter to get these sources."""
    left_out: int = 0
    """Number of sources that the filters leave out."""
    unproved: str = ""
    """Why nothing is left out although matrix.yaml has filters."""


def list_sources(version: str, release: FlashAttn, cache: Path, environ: Mapping[str, str]) -> SourceList:
    """List the kernel sources of a flash-attn release, cached in `cache` by the identity of its sources.

    Sources that its filters (`FlashAttn.trim`) leave out are not in the list if that is proved; the log says what
    applies. `environ` is the clean environment for git, PyPI and the generator. Raises `SourceError` if the sources
    cannot be fetched, or the generator commands cannot be read from setup.py, and `InputError` if their digest is not
    the release's `kernel_sources`.
    """
    found = find_cached_list(release, cache)
    if found is None:
        source = fetch_source(version, release, cache / "sources", environ)
        found, is_final = _generate_sources(version, release.trim, source, cache, environ)
        if release.kernel_sources not in (None, found.digest):
            raise InputError(
                "wrong kernel-sources in the matrix",
                f"flash-attn {version}: expected {release.kernel_sources}, found {found.digest}",
                "write the digest that was found (scripts/refresh_kernel_sources.py does), or remove kernel-sources",
            )
        if is_final:
            write_source_list(found, source.identity, cache, release.trim)
    if found.unproved:
        logger.warning("flash-attn %s: compiling all kernels, no proof for the filters: %s", version, found.unproved)
    elif found.left_out:
        logger.info("flash-attn %s: left out %d kernel sources that no call can reach", version, found.left_out)
    return found


def find_cached_list(release: FlashAttn, cache: Path) -> SourceList | None:
    """The list of a release as an earlier call cached it; None if there is none with the digest of the matrix."""
    is_pinned = release.sdist or (release.git and release.git.commit)
    cached = _read_list(_list_path(cache, release.source_pin, release.trim)) if is_pinned else None
    # a wrong digest may be of the cache, so only that of the sources themselves is refused
    return cached if cached and release.kernel_sources in (None, cached.digest) else None


def list_planned_sources(
    version: str, release: FlashAttn, cache: Path, environ: Mapping[str, str]
) -> SourceList | None:
    """The kernel sources that a build of a release must compile; None if they cannot be listed.

    `environ` is the factory's own environment. Raises `InputError` for a wrong digest in the matrix, as `list_sources`.
    """
    try:
        return list_sources(version, release, cache, clean_environ(environ))
    except SourceError as error:
        # not an error here: the build reports a problem with its sources
        logger.info("cannot list the kernel sources, so all are compiled, without a comparison: %s", error)
        return None


def write_source_list(
    source_list: SourceList, identity: str, cache: Path, filters: Sequence[GeneratorFilter] = ()
) -> None:
    """Cache the list of sources of this identity (``sha256:...`` or ``commit:...``) with these filters."""
    document = {"format": SOURCE_LIST_FORMAT, **asdict(source_list)}
    write_atomic(_list_path(cache, identity, filters), json.dumps(document, indent=1).encode() + b"\n")


def _list_path(cache: Path, identity: str, filters: Sequence[GeneratorFilter]) -> Path:
    name = identity.replace(":", "-")
    if filters:
        name += f"-trim-{content_key(json.dumps([item.model_dump() for item in filters]))}"
    return cache / "source-lists" / f"{name}.json"


def _read_list(path: Path) -> SourceList | None:
    """Read a cached list; None if it is missing, damaged or of another format."""
    try:
        document = json.loads(path.read_bytes())
        found = SourceList(
            sources=tuple(document["sources"]),
            total_bytes=document["total_bytes"],
            digest=document["digest"],
            filtered=tuple(FilteredCommand(tuple(item["arguments"]), item["filter"]) for item in document["filtered"]),
            left_out=document["left_out"],
            unproved=document["unproved"],
        )
        is_current = document["format"] == SOURCE_LIST_FORMAT
    except (OSError, ValueError, TypeError, KeyError):
        return None
    is_valid = isinstance(found.total_bytes, int) and all(
        isinstance(name, str) for name in (*found.sources, found.digest)
    )
    return found if is_current and is_valid and found.sources else None


def _generate_sources(
    version: str, filters: Sequence[GeneratorFilter], source: Source, cache: Path, environ: Mapping[str, str]
) -> tuple[SourceList, bool]:
    """Generate the sources of a release; also return whether a rerun must give the same, so that it can be cached."""
    # setup.py is parsed, not run, because it would import torch
    logger.info("generating the kernel sources of flash-attn %s", version)
    with scratch_dir(cache) as scratch:
        tree = unpack_source(source, scratch / "tree")
        commands = parse_generator_commands((tree / "setup.py").read_text(encoding="utf-8"), version)
        full = _run_generator(commands, tree, environ)
        if not full:
            raise SourceError("no kernel sources generated by flash-attn", version, "check its sources in matrix.yaml")
        generator = next(word for word in commands[0] if word.endswith(GENERATOR))
        everything = SourceList(tuple(sorted(full)), _size(tree), digest_kernel_sources(tree, generator))
        if not filters:
            return everything, True
        (tree / "build").rename(scratch / "full")
        full = {name: scratch / "full" / path.name for name, path in full.items()}
        try:
            filtered = filter_commands(commands, filters)
            trimmed = _run_generator(commands, tree, {**environ, **filter_environ(scratch / "python", filtered)})
            require_proof(full, trimmed, tree, generator=Path(generator))
        except (UnprovedError, SourceError) as error:
            # a generator can also fail because a disk is full, so only a comparison is final
            return replace(everything, unproved=" ".join(str(error).split())), isinstance(error, UnprovedError)
        left_out = len(full) - len(trimmed)
        return SourceList(tuple(sorted(trimmed)), _size(tree), everything.digest, filtered, left_out), True


def _run_generator(commands: Iterable[Sequence[str]], tree: Path, environ: Mapping[str, str]) -> dict[str, Path]:
    """Run the generator commands in the folder of setup.py; return the sources that setup.py would compile, by name."""
    generated = tree / "build"
    generated.mkdir(exist_ok=True)  # setup.py makes it too
    for command in commands:
        hint = "the generator is part of the sources: check that they are complete"
        capture(command, failure=SourceError, environ=environ, cwd=tree, hint=hint)
    return {path.stem: path for path in generated.iterdir() if fnmatchcase(path.name, COMPILED_PATTERN)}


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


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
