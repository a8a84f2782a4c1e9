"""Load matrix.yaml; each error names the file, line and column, and what to write instead."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from itertools import chain
from math import prod
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import Version
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from wheelfactory.core.cell import AITER_NAME, Backend, major_minor, preview_commit, public_version, required_products
from wheelfactory.core.errors import InputError
from wheelfactory.core.files import read_file
from wheelfactory.core.label import is_own_aiter
from wheelfactory.core.wrap import count_text
from wheelfactory.matrix.document import KEY, Document, KeyPath, Number, Problem, UnreadableError, quote
from wheelfactory.matrix.facts import Matrix
from wheelfactory.matrix.forms import in_window
from wheelfactory.matrix.origins import parse_tag

# ten times the factory's own matrix, which loads in 0.6 s; 10 MB would take 6 s and 300 MB of memory
MAX_BYTES = 300_000

# fifty times the factory's own matrix, and three times the cells that GitHub can build (256 x 256)
MAX_COMBINATIONS = 200_000

_MAX_CHARACTERS, _MAX_LINES = 400, 50
"""Limits of an error, in characters and lines. It starts with the problem, so a cut loses only the quoted value."""

_MAPPING = ("must be a mapping", "write 'key: value' lines below it, indented; leave the key out if there are none")

# message and hint, in terms of YAML, for each type of pydantic error
_MESSAGES = {
    "bool_type": ("must be true or false", "write true or false without quotes"),
    "dict_type": _MAPPING,
    "missing": ("is missing", "add it to that entry"),
    "model_type": _MAPPING,
    "string_type": ("must be text", "write it as text in quotes"),
    "string_too_long": ("is longer than 1000 characters", "shorten it"),
    "string_too_short": ("is too short", "write enough for a reader to check it"),
    "too_short": ("must not be empty", "write at least one"),
    "tuple_type": ("must be a list", "write [one, two]; leave the key out if there are none"),
}


def load_matrix(path: Path) -> Matrix:
    """Load a matrix file. Raises `InputError` with one ``file:line:column: what`` line for each mistake."""
    text = _read_text(path)
    try:
        document = Document(text)
    except UnreadableError as error:
        raise _as_error(path, "not YAML that can be read", [error.problem]) from None
    problems = set(document.problems)
    try:
        matrix = Matrix.model_validate(document.values)
    except ValidationError as error:
        for details in error.errors():
            # pydantic also calls a list too short if each of its items has an error
            if details["type"] != "too_short" or not details["input"]:
                problems.add(_explain(document, details))
    else:
        for check in _CHECKS:
            problems.update(Problem.at_mark(document.mark(key_path), *texts) for key_path, *texts in check(matrix))
    if problems:
        raise _as_error(path, f"{count_text(len(problems), 'mistake')} in the matrix", problems)
    return matrix


def _read_text(path: Path) -> str:
    if not path.exists():
        raise InputError("no such file", str(path), "name one with --matrix FILE")
    content = read_file(path, InputError("cannot read", str(path), "name a file with --matrix FILE"), MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        which = f"{path}:1:1: it has more than {MAX_BYTES:,} bytes"
        raise InputError("too large for a matrix", which, "name a matrix.yaml with --matrix, or remove entries")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        line, column = before.count(b"\n") + 1, error.start - before.rfind(b"\n")
        problem = Problem(line, column, f"byte 0x{content[error.start]:02x} is not UTF-8", "save the file as UTF-8")
        raise _as_error(path, "not UTF-8 text", [problem]) from None


def _as_error(path: Path, what: str, problems: Iterable[Problem]) -> InputError:
    ordered = sorted(problems)
    lines = [f"{path}:{problem.line}:{problem.column}: {_shorten(problem.what)}" for problem in ordered[:_MAX_LINES]]
    if len(ordered) > _MAX_LINES:
        lines.append(f"and {len(ordered) - _MAX_LINES:,} more")
    return InputError(what, "\n  ".join(lines), "; ".join(dict.fromkeys(_shorten(problem.hint) for problem in ordered)))


def _shorten(text: str) -> str:
    return text[:_MAX_CHARACTERS] + "..." * (len(text) > _MAX_CHARACTERS)


def _explain(document: Document, details: ErrorDetails) -> Problem:
    """Convert an error of pydantic to a problem with its position in the file."""
    key_path, kind, given = details["loc"], details["type"], details["input"]
    name = ".".join(str(part) for part in key_path if part != KEY) or "the file"
    other = str(details["msg"]).replace("Input should be", "must be")
    message, hint = _MESSAGES.get(kind, (other, details.get("ctx", {}).get("hint") or "write one of these"))
    what = f"{name} {message}"
    if kind == "extra_forbidden":
        what, hint = f"unknown key {key_path[-1]!r}", f"known here: {', '.join(_known_keys(key_path[:-1]))}"
        key_path = (*key_path, KEY)
    elif kind == "string_type" and isinstance(given, Number):
        what, hint = f"{name}: {given.text} is a number, not text", quote(given.text)
    return Problem.at_mark(document.mark(key_path), what, hint)


def _known_keys(key_path: KeyPath) -> Iterator[str]:
    """Find the allowed keys of a mapping in the JSON schema of `Matrix`."""
    node = _schema()
    for part in key_path:
        node = node.get("items") or node.get("properties", {}).get(part) or node["additionalProperties"]
        for option in (node, *node.get("anyOf", ())):
            if "$ref" in option:
                node = _schema()["$defs"][option["$ref"].rsplit("/", 1)[1]]
    yield from node["properties"]


@cache
def _schema() -> Any:
    return Matrix.model_json_schema(by_alias=True)


def _check_duplicate_versions(matrix: Matrix) -> Iterator[tuple[KeyPath, str, str]]:
    """Find two spellings of one version, such as 6.2 and 6.2.0."""
    for axis, versions in (("flash-attn", matrix.flash_attn), ("torch", matrix.torch), ("rocm", matrix.rocm)):
        first: dict[Version, str] = {}
        for text in versions:
            other = first.setdefault(Version(text), text)
            if other is not text:
                yield (axis, text, KEY), f"{text} is the same version as {other}", "keep one of them"


def _check_previews(matrix: Matrix) -> Iterator[tuple[KeyPath, str, str]]:
    """Find releases that are named as previews, and untagged commits that are named as releases."""
    for version, release in matrix.flash_attn.items():
        commit = release.git.commit[:7] if release.git and release.git.commit and not release.git.tag else ""
        if preview_commit(version) != commit:
            public = public_version(version)
            what = f"{version} is built from {f'the commit {commit}' if commit else 'a release'}"
            wanted = f"{public}+git{commit}" if commit else public
            yield ("flash-attn", version, KEY), what, f"write '{wanted}'"


def _check_file_names(matrix: Matrix) -> Iterator[tuple[KeyPath, str, str]]:
    """Find files whose project or version differs from their entry."""
    for version, release in matrix.flash_attn.items():
        name = f"flash_attn-{version}.tar.gz"
        if release.sdist and release.sdist.file != name:
            what = f"{release.sdist.file} is not the sdist of {version}"
            yield ("flash-attn", version, "sdist", "file"), what, f"write {name}"
    for project, dependency in matrix.dependencies.items():
        name, version, *_ = dependency.wheel.split("-")
        if (canonicalize_name(name), version) != (project, dependency.version):
            what = f"{dependency.wheel} is not a wheel of {project} {dependency.version}"
            hint = f"its name begins with {project.replace('-', '_')}-{dependency.version}-"
            yield ("dependencies", project, "wheel"), what, hint


def _check_aiter(matrix: Matrix) -> Iterator[tuple[KeyPath, str, str]]:
    """Find an amd-aiter whose version could be AMD's, and previews for which the matrix builds no amd-aiter."""
    dependency = matrix.dependencies.get(AITER_NAME)
    if dependency and not is_own_aiter(dependency.version):
        what = f"{dependency.version} could be a version of AMD's, which ours must never replace"
        yield (("dependencies", AITER_NAME, "version"), what, "write 0.0. and the date of the commit: 0.0.20260602")
    is_built = dependency is not None and dependency.git is not None
    for version, release in matrix.flash_attn.items():
        required = required_products(Backend.TRITON, preview_commit(version))
        if release.triton and AITER_NAME in required and not is_built:
            what = f"the Triton kernels of {version} are in {AITER_NAME}, which this file does not build"
            yield ("flash-attn", version, "triton"), what, f"add {AITER_NAME} with git to the dependencies"


def _check_filters(matrix: Matrix) -> Iterator[tuple[KeyPath, str, str]]:
    """Find releases with the same kernel sources, which share a kernel set, but different filters."""
    first: dict[str, str] = {}
    for version, release in matrix.flash_attn.items():
        other = first.setdefault(release.kernel_sources, version) if release.kernel_sources else version
        if release.filters != matrix.flash_attn[other].filters:
            what = f"{version} has the kernel sources of {other}, and another trim"
            yield ("flash-attn", version, "kernel-sources"), what, "give both the same trim"


def _check_size(matrix: Matrix) -> Iterator[tuple[KeyPath, str, str]]:
    """Report too many combinations, which are all expanded one by one."""
    axes = (matrix.flash_attn, matrix.python, matrix.torch, matrix.rocm, matrix.backend)
    if (count := prod(map(len, axes))) > MAX_COMBINATIONS:
        yield (), f"the axes make {count:,} combinations", f"remove versions: the limit is {MAX_COMBINATIONS:,}"


def _check_torch_entries(matrix: Matrix) -> Iterator[tuple[KeyPath, str, str]]:
    """Find torch releases of ROCm entries that have no entry under ``torch``."""
    for version, rocm in matrix.rocm.items():
        for position, torch in enumerate(rocm.torch):
            if torch not in matrix.torch:
                hint = f"known: {', '.join(matrix.torch)}; add one under torch:"
                yield ("rocm", version, "torch", position), f"torch {torch} has no entry", hint


def _check_copied_rocms(matrix: Matrix) -> Iterator[tuple[KeyPath, str, str]]:
    """Find an index or image of another ROCm, and an image with other fields than its tag, as in a copied entry."""
    for version, rocm in matrix.rocm.items():
        named = re.search(r"/rocm(\d+\.\d+[\d.]*)/*$", rocm.index)
        # 6.4.3 may have the index of 6.4, but not if 6.4 is an entry, too
        is_other = named and (named[1] in matrix.rocm or major_minor(named[1]) != major_minor(version))
        if named and is_other and named[1] != version:
            yield ("rocm", version, "index"), f"this is the index of ROCm {named[1]}", f"write that of ROCm {version}"
        for position, image in enumerate(rocm.images):
            place, tag = ("rocm", version, "images", position), parse_tag(image.tag.rpartition(":")[2])
            if image.tag in [other.tag for other in rocm.images[:position]]:
                yield (*place, "tag"), f"{image.tag} is listed twice", "remove one of them"
            if tag and tag.rocm[:2] != major_minor(version):
                yield (*place, "tag"), f"{tag.text} is not of ROCm {version}", "name an image of this ROCm"
            fields = {"distribution": image.distribution, "python": f"py{image.python}", "torch": image.torch}
            for (field, given), said in zip(fields.items(), tag.kind if tag else (), strict=False):
                if given not in (None, said):
                    what = f"{given} is not the {field} of the tag, which has {said}"
                    yield (*place, field), what, "correct one of them"


def _check_archs(matrix: Matrix) -> Iterator[tuple[KeyPath, str, str]]:
    """Find releases without a backend, and archs with two answers."""
    answers: dict[KeyPath, tuple[Collection[str], ...]] = {}
    for version, release in matrix.flash_attn.items():
        if release.triton:
            triton = release.triton
            answers["flash-attn", version, "triton"] = triton.archs, triton.may_work, triton.fails
        elif not release.ck:
            yield ("flash-attn", version, KEY), f"{version} has no backend", "add ck, triton or both"
    answers |= {("rocm", version): (rocm.archs, rocm.may_work) for version, rocm in matrix.rocm.items()}
    for place, groups in answers.items():
        for arch, count in Counter(chain(*groups)).items():
            if count > 1:
                yield (*place, "archs"), f"{arch} stands in two of archs, may-work and fails", "keep one of them"


def _check_exclusions(matrix: Matrix) -> Iterator[tuple[KeyPath, str, str]]:
    """Find exclusions that match no version or backend of their axis."""
    axes = {"flash-attn": matrix.flash_attn, "python": matrix.python, "torch": matrix.torch, "rocm": matrix.rocm}
    for position, exclusion in enumerate(matrix.exclude):
        for axis, window in exclusion.axes.items():
            if not any(in_window(window, value) for value in axes[axis]):
                yield ("exclude", position, axis), f"no {axis} version is {window}", f"known: {', '.join(axes[axis])}"
        if exclusion.backend and exclusion.backend not in matrix.backend:
            hint = f"known: {', '.join(map(str, matrix.backend))}"
            yield ("exclude", position, "backend"), f"no backend is {exclusion.backend}", hint


_CHECKS = (
    *(_check_duplicate_versions, _check_previews, _check_file_names, _check_filters, _check_aiter, _check_size),
    *(_check_torch_entries, _check_copied_rocms, _check_archs, _check_exclusions),
)
"""What no field shows by itself: each check yields the place, the mistake and the hint."""
