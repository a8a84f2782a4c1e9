"""Prove that the output of a generator with filters replaces its full output.

It does if it dispatches every call of the bindings as the output of the run without filters does.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from filter_proof.constants import assigns_field, find_constants
from filter_proof.if_chain import Block, Leaf, Tokens, UnknownCodeError, leaves, parse_block, restrict, tokenize
from wheelfactory.build.sources import fetch_source, unpack_source
from wheelfactory.core.files import scratch_dir
from wheelfactory.kernels.compiler.targets import is_dispatch
from wheelfactory.kernels.generator_commands import (
    GENERATED,
    digest_filter_proof,
    digest_kernel_sources,
    filter_commands,
    filter_environ,
    list_bindings,
    parse_generator_commands,
)
from wheelfactory.kernels.source_list import find_generator, run_generator
from wheelfactory.matrix.facts import FlashAttn

_DISPATCHED = re.compile(r"\b(\w+_traits) (\w+) ?,")
_ALIAS = re.compile(r"\busing (\w+) *= *([^;{}]*);")
_FAMILY = r"ck_tile::(gfx\w+_t)\b"
"""The tag of a GPU family, which newer generators give each kernel beside its type."""
_ALIAS_OR_FAMILY = re.compile(f"{_ALIAS.pattern}|{_FAMILY}")
_SPECIALIZED = re.compile(rf"\btemplate *<> *[\w:]+ +\w+<(\w+)(?:, *{_FAMILY})?>")
_COMPARED = re.compile(r"\((\d+) *> *(\d+)\)")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_MAX_SHOWN = 160
"""Characters of a condition in a difference."""

Kernel: TypeAlias = "tuple[Tokens, str]"
"""The type that a kernel's template is specialized for, and the tag of its GPU family (empty up to 2.8.3)."""


def find_differences(
    full: Mapping[str, str], trimmed: Mapping[str, str], bindings: Sequence[str], headers: Sequence[str]
) -> list[str]:
    """Find what keeps a trimmed run from replacing the full one; none is the proof that it can.

    `full` and `trimmed` are the texts of the generated sources by name, `bindings` those of the C++ files that call
    them, `headers` those that declare the structures of these calls. Each difference is one line.
    """
    dispatches = [name for name in full if is_dispatch(name)]
    found = [f"{name} differs, and is no dispatch file" for name in trimmed if _is_other_kernel(name, full, trimmed)]
    for name in dispatches:
        if name not in trimmed:
            found.append(f"{name} is missing")
        elif trimmed[name] != full[name]:
            found += _compare_dispatch(name, full[name], trimmed[name], bindings, headers)
    if not dispatches:
        found.append("no dispatch file is generated")
    defined = {kernel for name, text in trimmed.items() if not is_dispatch(name) for kernel in _defined_kernels(text)}
    for name in dispatches:
        found += _missing_kernels(name, trimmed.get(name, ""), defined)
    return found


def _is_other_kernel(name: str, full: Mapping[str, str], trimmed: Mapping[str, str]) -> bool:
    return name not in full or (not is_dispatch(name) and trimmed[name] != full[name])


def _compare_dispatch(
    name: str, full: str, trimmed: str, bindings: Sequence[str], headers: Sequence[str]
) -> Iterator[str]:
    """Compare two dispatch files for the calls that the bindings can make."""
    try:
        constants = _constants(full, bindings, headers)
        # both are restricted, so that a branch that is never taken may be in either
        one, two = (restrict(parse_block(tokenize(text)), constants) for text in (full, trimmed))
        if one != two:
            yield f"{name}: {_first_difference(one, two)}"
    except (UnknownCodeError, RecursionError) as error:
        yield f"{name} is not understood: {error}"


def _constants(dispatch: str, bindings: Sequence[str], headers: Sequence[str]) -> dict[Tokens, bool]:
    """Return the dispatch conditions that are constant for every binding, with their value."""
    parameters = set(_DISPATCHED.findall(dispatch))
    if len(parameters) != 1:
        return {}
    ((structure, parameter),) = parameters
    tokens = tokenize(dispatch)
    return {
        (parameter, ".", field): value
        for field, value in find_constants(structure, headers, bindings).items()
        if not assigns_field(tokens, field)
    }


def _first_difference(full: Block, trimmed: Block) -> str:
    """Describe the first difference of two restricted chains."""
    one, two = list(leaves(full)), list(leaves(trimmed))
    ones, twos = set(one), set(two)
    missing, added = [leaf for leaf in one if leaf not in twos], [leaf for leaf in two if leaf not in ones]
    if missing:
        return f"{len(missing)} branches that a call can take are missing: {_shown(missing[0])}"
    if added:
        return f"{len(added)} branches are not in the full run: {_shown(added[0])}"
    for before, after in zip(one, two, strict=False):
        if before != after:
            return f"branches are in another order from: {_shown(before)}"
    return "code outside of its branches differs"


def _shown(leaf: Leaf) -> str:
    text = " ".join(leaf.conditions[-1])
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 3]}..."


def _missing_kernels(name: str, dispatch: str, defined: Collection[Kernel]) -> Iterator[str]:
    """Find kernels that a dispatch file names and no source defines: the library would lack them when it is loaded."""
    named = list(_named_kernels(dispatch))
    missing = dict.fromkeys(kernel for kernel in named if kernel not in defined)
    if missing:
        (first, family) = next(iter(missing))
        where = f" for {family}" if family else ""
        yield f"{name} names {len(missing)} kernels that are not generated: {''.join(first)}{where}"
    elif not named and dispatch:
        yield f"{name} names no kernel"


def _named_kernels(dispatch: str) -> Iterator[Kernel]:
    """The kernels that a dispatch file calls. A call names the family after the types."""
    called: list[Tokens] = []
    for _alias, value, family in _ALIAS_OR_FAMILY.findall(_plain(dispatch)):
        called += [tokens for tokens in [tokenize(value)] if _is_kernel_type(tokens)]
        if family:
            yield from ((tokens, family) for tokens in called)
            called.clear()
    yield from ((tokens, "") for tokens in called)


def _defined_kernels(text: str) -> Iterator[Kernel]:
    """The kernels that a source defines: the types that its templates are specialized for, without aliases."""
    plain = _plain(text)
    values = {alias: tokenize(value) for alias, value in _ALIAS.findall(plain)}
    for alias, family in set(_SPECIALIZED.findall(plain)):
        if alias in values:
            yield tuple(token for word in values[alias] for token in values.get(word, (word,))), family


def _is_kernel_type(value: Tokens) -> bool:
    return bool(value) and value[0].startswith("fmha_") and value[0].endswith("_traits_")


def _plain(text: str) -> str:
    """C++ without comments, on one line. Comparisons of numbers are replaced by their value."""
    plain = " ".join(_COMMENT.sub(" ", text).split())
    # a dispatch file writes a padding as (8 > 0) where the kernel has true
    return _COMPARED.sub(lambda found: "true" if int(found[1]) > int(found[2]) else "false", plain)


class UnprovedError(Exception):
    """Why a release must be compiled without its filters, in one line."""


def prove_filters(version: str, release: FlashAttn, cache: Path, environ: Mapping[str, str]) -> str:
    """Prove the filters of a release on its sources, and return the digest to write into matrix.yaml.

    `environ` is the clean environment for git, PyPI and the generator. Raises `UnprovedError`, and `SourceError` if the
    sources cannot be fetched or generated.
    """
    source = fetch_source(version, release, cache / "sources", environ)
    with scratch_dir(cache) as scratch:
        tree = unpack_source(source, scratch / "tree")
        archs = release.ck.archs if release.ck else ()
        commands = parse_generator_commands((tree / "setup.py").read_text(encoding="utf-8"), version, archs)
        full = _read_all(run_generator(commands, tree, environ))
        generator = find_generator(commands)
        digest = digest_filter_proof(tree, generator, digest_kernel_sources(tree, generator), release.filters)
        shutil.rmtree(tree / GENERATED)
        filters = filter_environ(scratch / "python", filter_commands(commands, release.filters))
        require_proof(full, _read_all(run_generator(commands, tree, {**environ, **filters})), tree, generator)
        return digest


def require_proof(full: Mapping[str, str], trimmed: Mapping[str, str], tree: Path, generator: str) -> None:
    """Raise `UnprovedError` unless these texts of a filtered run serve every call of the bindings in `tree`.

    `full` and `trimmed` are the generated texts by name without extension; `generator` is the path of the program in
    `tree`.
    """
    if len(trimmed) >= len(full):
        raise UnprovedError("the filters leave nothing out")
    bindings = [_read(path) for path in list_bindings(tree, generator)]
    headers = [_read(path) for path in sorted((tree / generator).parent.glob("*.hpp"))]
    differences = find_differences(full, trimmed, bindings, headers)
    if differences:
        more = f"; and {len(differences) - 1} more differences" if len(differences) > 1 else ""
        raise UnprovedError(differences[0] + more)


def _read_all(paths: Mapping[str, Path]) -> dict[str, str]:
    return {name: _read(path) for name, path in paths.items()}


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")
