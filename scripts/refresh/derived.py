"""The files of this repository that follow from others: each is written by a rule, and compared by the tests."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml
from packaging.version import Version

from wheelfactory.commands.matrix import supported_tables
from wheelfactory.core.cell import preview_commit
from wheelfactory.core.errors import FactoryError
from wheelfactory.core.files import atomic_path
from wheelfactory.matrix.expand import expand
from wheelfactory.matrix.facts import Matrix

CELLS = "tests/data/cells.txt"
"""The id of every cell: a pull request shows which wheels an edit of matrix.yaml adds or drops."""

WORKFLOWS = "tests/data/workflows.txt"
"""Every setting of the workflows: what a pull request changes in them is reviewed here."""


_UNRELEASED = "## [Unreleased]\n\n"


def derived_files(root: Path, matrix: Matrix) -> Mapping[Path, str]:
    """Return what the files below a checkout must be, by path; nothing is written.

    Raises `FactoryError` if an entry of the matrix is out of order, or README lacks the marks of its table.
    """
    _check_order(matrix)
    expansion = expand(matrix)
    readme = root / "README.md"
    return {
        root / CELLS: "".join(f"{cell.id}\n" for cell in expansion.cells),
        root / WORKFLOWS: workflow_settings(root),
        readme: _with_section(readme, "./factory matrix --table", supported_tables(matrix, expansion)),
    }


def _check_order(matrix: Matrix) -> None:
    """Refuse a version below an older one: a reader looks for the newest first, and cells are built in this order."""
    releases = [version for version in matrix.flash_attn if not preview_commit(version)]
    for axis, versions in (("flash-attn", releases), ("torch", [*matrix.torch]), ("rocm", [*matrix.rocm])):
        for above, below in pairwise(versions):
            if Version(above) < Version(below):
                which = f"{axis}: {below} stands below {above}"
                raise FactoryError("matrix.yaml is out of order", which, "sort the entries, newest first")


def _with_section(path: Path, name: str, section: Iterable[str]) -> str:
    """Replace what stands between ``<!-- name -->`` and ``<!-- end -->``."""
    before, begin, rest = path.read_text(encoding="utf-8").partition(f"<!-- {name} -->\n\n")
    _, end, after = rest.partition("\n<!-- end -->")
    if not end:
        raise FactoryError("a page lacks its marks", f"{path}: <!-- {name} -->", "restore them from the last commit")
    text = "\n".join(section).rstrip() + "\n"
    return f"{before}{begin}{text}{end}{after}"


def note_additions(root: Path, report: Iterable[str]) -> None:
    """Write each addition of a report to the changelog. Raises `FactoryError` if it has no place for it."""
    notes = "".join(f"- Added {line.removeprefix('added').strip()}.\n" for line in report if line.startswith("added"))
    path, heading = root / "CHANGELOG.md", "### Wheels\n\n"
    before, place, after = path.read_text(encoding="utf-8").partition(_UNRELEASED)
    if notes and not place:
        raise FactoryError("a page lacks its heading", f"{path}: {_UNRELEASED.strip()}", "restore it")
    if notes:
        after = after.removeprefix(heading) if after.startswith(heading) else f"\n{after}"
        with atomic_path(path) as written:
            written.write_text(f"{before}{place}{heading}{notes}{after}", encoding="utf-8")


def write_derived(root: Path, matrix: Matrix) -> Iterator[str]:
    """Write the files that differ, and yield a report line for each: how many lines, such as cells, come and go.

    Raises `FactoryError`.
    """
    for path, text in derived_files(root, matrix).items():
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        if before != text:
            with atomic_path(path) as written:
                written.write_text(text, encoding="utf-8")
            old, new = set(before.splitlines()), set(text.splitlines())
            yield f"written    {path.relative_to(root)}: {len(new - old)} lines more, {len(old - new)} fewer"


_FOR_PEOPLE = ("description", "name", "run-name")


def workflow_settings(root: Path) -> str:
    """Return the settings below a checkout: all but titles, comments and the versions of actions."""
    folder = root / ".github"
    paths = sorted([*folder.glob("workflows/*.y*ml"), *folder.glob("actions/**/action.y*ml")])
    # the base loader keeps every value, and the key `on`, as text, and repeats what an anchor stands for
    contents = [yaml.load(path.read_text(encoding="utf-8"), yaml.BaseLoader) for path in paths]  # noqa: S506 - text only
    files = zip(paths, contents, strict=True)
    lines = (line for path, content in files for line in _lines(content, f"{path.relative_to(folder)}:"))
    return "".join(f"{line}\n" for line in lines)


def _lines(value: Any, where: str) -> Iterator[str]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            is_title = key in _FOR_PEOPLE and isinstance(inner, str) and not where.endswith((" with", " env"))
            if not is_title:
                yield from _lines(inner.partition("@")[0] if key == "uses" else inner, f"{where} {key}")
    elif isinstance(value, list) and value:
        for item in value:
            title = item.get("name") or item.get("uses", "").partition("@")[0] if isinstance(item, Mapping) else ""
            yield from _lines(item, f"{where} [{title}]")
    else:
        text = json.dumps(value) if "\n" in value or not value else value
        yield f"{where} = {text}"
