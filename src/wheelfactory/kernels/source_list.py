"""List the kernel sources that a release's build compiles, by running upstream's generator as its setup.py does.

The names and number of sources change with each release, so nothing here lists them.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from wheelfactory.build.environments import clean_environ
from wheelfactory.build.sources import Source, fetch_source, unpack_source
from wheelfactory.core.errors import InputError, SourceError
from wheelfactory.core.files import content_key, scratch_dir, write_atomic
from wheelfactory.core.process import capture
from wheelfactory.core.progress import logger
from wheelfactory.core.strict import parse_record
from wheelfactory.kernels.compiler.targets import read_guard
from wheelfactory.kernels.generator_commands import (
    GENERATED,
    GENERATOR,
    FilteredCommand,
    digest_filter_proof,
    digest_kernel_sources,
    filter_commands,
    filter_environ,
    parse_generator_commands,
)
from wheelfactory.matrix.facts import FlashAttn, Trim
from wheelfactory.wheel.corrections import corrections_id

SOURCE_LIST_FORMAT = 7
"""Format number of a cached source list."""
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
    left_out: tuple[str, ...] = ()
    """The sources that the filters leave out."""
    archs: tuple[str, ...] = ()
    """The archs that the generator was run for; empty if it makes the same sources for all."""
    guards: Mapping[str, str] = field(default_factory=dict)
    """See `wheelfactory.kernels.compiler.targets`."""
    format: int = SOURCE_LIST_FORMAT


def list_sources(
    version: str, release: FlashAttn, cache: Path, environ: Mapping[str, str], archs: Sequence[str] | None = None
) -> SourceList:
    """List the kernel sources of a flash-attn release, cached in `cache` by the identity of its sources.

    Sources that its filters (`FlashAttn.trim`) leave out are not in the list if they are proved for these sources; the
    log says what applies. `environ` is the clean environment for git, PyPI and the generator. `archs` are those of the
    build; None for all of the release. Raises `SourceError` if the sources cannot be fetched, or the generator commands
    cannot be read from setup.py, and `InputError` if their digest is not the release's `kernel_sources`.
    """
    archs = tuple(_all_archs(release) if archs is None else archs)
    found = find_cached_list(release, cache, archs)
    if found is None:
        source = fetch_source(version, release, cache / "sources", environ)
        found = _generate_sources(version, release.trim, source, cache, environ, archs)
        if not _has_digest(found, release):
            which = f"flash-attn {version}: expected {release.kernel_sources}, found {found.digest}"
            hint = "write the digest that was found (scripts/refresh_kernel_sources.py does), or remove kernel-sources"
            raise InputError("wrong kernel-sources in the matrix", which, hint)
        write_source_list(found, source.identity, cache, release.trim)
    if release.trim and not found.filtered:
        hint = "scripts/refresh_kernel_sources.py proves them"
        logger.warning("flash-attn %s: compiling all kernels, no proof for the filters: %s", version, hint)
    elif found.left_out:
        logger.info("flash-attn %s: left out %d kernel sources that no call can reach", version, len(found.left_out))
    return found


def _all_archs(release: FlashAttn) -> tuple[str, ...]:
    return release.ck.archs if release.ck else ()


def find_cached_list(release: FlashAttn, cache: Path, archs: Sequence[str] | None = None) -> SourceList | None:
    """The cached list of a release; None if no cached list has the digest of the matrix."""
    is_pinned = release.sdist or (release.git and release.git.commit)
    archs = _all_archs(release) if archs is None else archs
    paths = [_list_path(cache, release.source_pin, release.trim, names) for names in ((), archs)] if is_pinned else []
    cached = next(filter(None, map(_read_list, paths)), None)
    # a stale cache entry can have a wrong digest: ignore it here, and reject only freshly generated sources
    return cached if cached and _has_digest(cached, release) else None


def _has_digest(found: SourceList, release: FlashAttn) -> bool:
    """Whether a list has the digest of the matrix, which is of the sources for all archs of the release."""
    is_of_all = found.archs in ((), _all_archs(release))
    return not is_of_all or release.kernel_sources in (None, found.digest)


def list_planned_sources(
    version: str, release: FlashAttn, cache: Path, environ: Mapping[str, str], archs: Sequence[str]
) -> SourceList | None:
    """The kernel sources that a build of a release for these archs must compile; None if they cannot be listed.

    `environ` is the factory's own environment. Raises `InputError` for a wrong digest in the matrix, as `list_sources`.
    """
    try:
        return list_sources(version, release, cache, clean_environ(environ), archs)
    except SourceError as error:
        # not an error here: the build reports a problem with its sources
        logger.info("cannot list the kernel sources, so all are compiled, without a comparison: %s", error)
        return None


def write_source_list(source_list: SourceList, identity: str, cache: Path, trim: Trim | None = None) -> None:
    """Cache the list of sources of this identity (``sha256:...`` or ``commit:...``), corrected, with these filters."""
    path = _list_path(cache, identity, trim, source_list.archs)
    write_atomic(path, json.dumps(asdict(source_list), indent=1).encode() + b"\n")


def _list_path(cache: Path, identity: str, trim: Trim | None, archs: Sequence[str]) -> Path:
    name = f"{identity.replace(':', '-')}-{corrections_id()}"
    if trim:
        name += f"-trim-{content_key(trim.model_dump_json(exclude={'source'}))}"
    return cache / "source-lists" / f"{'-'.join([name, *archs])}.json"


def _read_list(path: Path) -> SourceList | None:
    """Read a cached list; None if it is missing, damaged or of another format."""
    with suppress(OSError, ValueError):
        found = parse_record(SourceList, path.read_bytes())
        return found if found.format == SOURCE_LIST_FORMAT and found.sources else None
    return None


def _generate_sources(
    version: str, trim: Trim | None, source: Source, cache: Path, environ: Mapping[str, str], archs: tuple[str, ...]
) -> SourceList:
    """Generate the sources of a release for a build for these archs; with its filters if they are proved for them."""
    logger.info("generating the kernel sources of flash-attn %s", version)
    with scratch_dir(cache) as scratch:
        tree = unpack_source(source, scratch / "tree")
        setup = (tree / "setup.py").read_text(encoding="utf-8")
        commands = parse_generator_commands(setup, version, archs)
        is_for_archs = commands != parse_generator_commands(setup, version, ())
        full = run_generator(commands, tree, environ)
        if not full:
            raise SourceError("no kernel sources generated by flash-attn", version, "check its sources in matrix.yaml")
        guards = {name: guard for name, path in sorted(full.items()) if (guard := read_guard(str(path)))}
        generator = find_generator(commands)
        digest, kept = digest_kernel_sources(tree, generator), full
        filtered: tuple[FilteredCommand, ...] = ()
        if trim and trim.proof == digest_filter_proof(tree, generator, digest, trim.filters):
            filtered = filter_commands(commands, trim.filters)
            shutil.rmtree(tree / GENERATED)
            kept = run_generator(commands, tree, {**environ, **filter_environ(scratch / "python", filtered)})
        return SourceList(
            sources=tuple(sorted(kept)),
            total_bytes=sum(path.stat().st_size for path in tree.rglob("*") if path.is_file()),
            digest=digest,
            filtered=filtered,
            left_out=tuple(sorted({*full} - {*kept})),
            archs=archs if is_for_archs else (),
            guards=guards,
        )


def find_generator(commands: Iterable[Sequence[str]]) -> str:
    """The path of the generator in the sources."""
    return next(word for command in commands for word in command if word.endswith(GENERATOR))


def run_generator(commands: Iterable[Sequence[str]], tree: Path, environ: Mapping[str, str]) -> dict[str, Path]:
    """Run the generator commands in the folder of setup.py; return the sources that setup.py would compile, by name."""
    generated = tree / GENERATED
    generated.mkdir(exist_ok=True)  # setup.py makes it too
    for command in commands:
        hint = "the generator is part of the sources: check that they are complete"
        capture(command, failure=SourceError, environ=environ, cwd=tree, hint=hint)
    return {path.stem: path for path in generated.iterdir() if fnmatchcase(path.name, COMPILED_PATTERN)}
