"""Prove that a generator run with filters dispatches every call of the bindings as the run without filters does."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from wheelfactory.kernels.trim.constants import assigns_field, find_constants
from wheelfactory.kernels.trim.if_chain import (
    Block,
    Leaf,
    Tokens,
    UnknownCodeError,
    leaves,
    parse_block,
    restrict,
    tokenize,
)

_DISPATCHED = re.compile(r"\b(\w+_traits) (\w+) ?,")
_ALIAS = re.compile(r"\busing (\w+) *= *([^;{}]*);")
_SPECIALIZED = re.compile(r"\btemplate *<> *[\w:]+ +\w+<(\w+)>")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_MAX_SHOWN = 160
"""Characters of a condition in a difference."""


def is_dispatch(name: str) -> bool:
    """Whether a generated source (name without extension) chooses a kernel for a call, and is no kernel itself."""
    return name.endswith("_api")


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
    """The expressions of a dispatch file that have one value in all calls of the bindings, and that value."""
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


def _missing_kernels(name: str, dispatch: str, defined: Collection[Tokens]) -> Iterator[str]:
    """Find kernels that a dispatch file names and no source defines: the library would lack them when it is loaded."""
    named = [value for _alias, value in _aliases(dispatch) if _is_kernel_type(value)]
    missing = dict.fromkeys(value for value in named if value not in defined)
    if missing:
        yield f"{name} names {len(missing)} kernels that are not generated: {''.join(next(iter(missing)))}"
    elif not named and dispatch:
        yield f"{name} names no kernel"


def _defined_kernels(text: str) -> Iterator[Tokens]:
    """The kernels that a source defines: the types that its templates are specialized for, without aliases."""
    values = dict(_aliases(text))
    specialized = set(_SPECIALIZED.findall(_plain(text)))
    for alias in specialized & values.keys():
        yield tuple(token for word in values[alias] for token in values.get(word, (word,)))


def _aliases(text: str) -> Iterator[tuple[str, Tokens]]:
    for alias, value in _ALIAS.findall(_plain(text)):
        yield alias, tokenize(value)


def _is_kernel_type(value: Tokens) -> bool:
    return bool(value) and value[0].startswith("fmha_") and value[0].endswith("_traits_")


def _plain(text: str) -> str:
    """C++ without comments, on one line."""
    return " ".join(_COMMENT.sub(" ", text).split())
