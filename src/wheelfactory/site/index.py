"""Render manifest rows as package indexes (PEP 503, requires-python, core metadata, yank marks), and as install lines.

One index per (ROCm, torch, backend): in a flat index, pip would install the highest label, whatever the machine has.
The templates write ``data-core-metadata`` only: its older name makes pip 22.3 to 23.1 refuse every file (measured).
HTML instead of JSON, because a static host cannot send JSON's content type.

The lines install from an index, by file, on the search page, and for a smoke test.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined

from wheelfactory.build.environments import cpu_torch_options, cpu_torch_requirement, cpu_torch_version
from wheelfactory.core.cell import AITER_NAME, ANY_PYTHON, OFFERED_PRODUCTS, PRODUCTS, Backend, Cell
from wheelfactory.core.label import FALLBACK_INDEX, IndexKey, Label, index_path
from wheelfactory.core.published import WHEELS_FOLDER, pip_for, url_with_sha256, uv_for, wheel_url
from wheelfactory.matrix.facts import Matrix
from wheelfactory.release.manifest import WheelRow
from wheelfactory.site.wheel_text import group_by_index

INDEX_DEPTH = 3
"""The number of folders of an index below ``simple``."""

_INDEX = "Package index of flash-attn wheels for {}: pass its address to pip --index-url or uv --default-index."
_FOLDER = "Package indexes of flash-attn wheels for AMD GPUs, one for each ROCm, torch and backend."


def render_index(rows: Iterable[WheelRow]) -> dict[str, bytes]:
    """Render every page of every index, by path below the release."""
    templates = page_templates()
    links, files = templates.get_template("links.html"), templates.get_template("files.html")
    pages: dict[str, bytes] = {}
    children: dict[str, set[str]] = defaultdict(set)
    newest: dict[str, str] = defaultdict(str)
    for key, projects in _by_index(rows).items():
        for project, members in projects.items():
            folder = f"{index_path(key)}/{project}"
            above = folder.split("/")
            listed = [(row, wheel_url(row.filename, row.url, "../" * len(above))) for row in members]
            about = f"The files of {project} for {_describe(key)}: pip and uv read this page."
            date = newest_date(members)
            pages[f"{folder}/index.html"] = files.render(title=project, about=about, files=listed, date=date).encode()
            for end in range(1, len(above)):
                parent = "/".join(above[:end])
                children[parent].add(above[end])
                newest[parent] = max(newest[parent], date)
    for folder, names in children.items():
        parts = folder.split("/")[1:]
        is_index = len(parts) == INDEX_DEPTH or tuple(parts) == FALLBACK_INDEX
        about = _INDEX.format(_describe(parts)) if is_index else _FOLDER
        # an index links to nothing but its projects (PEP 503)
        home = "" if is_index else "../" * (len(parts) + 1)
        given = {"title": folder, "about": about, "names": sorted(names), "home": home, "date": newest[folder]}
        pages[f"{folder}/index.html"] = links.render(given).encode()
    return pages


def page_templates() -> Environment:
    """The templates of the lists, and of a project for uv."""
    return Environment(
        loader=PackageLoader("wheelfactory.site"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def newest_date(rows: Iterable[WheelRow]) -> str:
    """The date on which the newest of some rows was published, as ``2026-11-24``."""
    return f"{max(row.published for row in rows):%Y-%m-%d}"


def _describe(key: Sequence[str]) -> str:
    """``ROCm 6.4, torch 2.9, backend ck`` for the folders of an index."""
    if tuple(key) == FALLBACK_INDEX:
        return "every GPU, in pure PyTorch"
    label = Label.parse("".join(key[:2]))
    built = "AMD's torch" if label.amd_torch else "torch"
    return f"ROCm {label.rocm_version}, {built} {label.torch_version}, backend {key[2]}"


def _by_index(rows: Iterable[WheelRow]) -> dict[IndexKey, dict[str, list[WheelRow]]]:
    """The rows of each index by project. A product is in every index with a wheel that requires it, or in all."""
    ordered = sorted(rows, key=lambda row: row.filename)
    indexes: dict[IndexKey, dict[str, list[WheelRow]]] = {}
    for key in dict.fromkeys(row.index_key for row in ordered if row.index_key):
        labels = {row.label for row in ordered if row.label and row.index_key == key}
        required = {name for label in labels for name in Label.parse(label).requires}
        left_out = PRODUCTS.keys() - required - {*OFFERED_PRODUCTS}
        projects = indexes[key] = defaultdict(list)
        for row in ordered:
            if row.index_key in (key, None) and row.project not in left_out:
                projects[row.project].append(row)
    return indexes


def directory_install_lines(rows: Sequence[WheelRow], folder: Path) -> list[str]:
    """One install command for each index that lists one of the rows. It uses no other index."""
    return [index_install_line(key, file_url(folder)) for key in group_by_index(rows)]


def file_url(folder: Path) -> str:
    """The ``file://`` address of a release directory."""
    return f"file://{quote(str(folder.resolve()))}"


def github_pages_url(repository: str) -> str:
    """The GitHub Pages address of ``OWNER/REPO`` without a custom domain (GitHub's documentation)."""
    owner, _, name = repository.partition("/")
    host = f"{owner.lower()}.github.io"
    return f"https://{host}/" if name.lower() == host else f"https://{host}/{name}/"


def index_install_line(key: IndexKey, site: str) -> str:
    """The command that installs from one index of the release at the address `site`, and from nowhere else."""
    return shlex.join(pip_for().install_from_index(f"{site.rstrip('/')}/{index_path(key)}/", "flash-attn"))


def file_install_line(row: WheelRow, matrix: Matrix, published: Iterable[WheelRow] = ()) -> str:
    """The command that installs one wheel by address and digest; without an address, from the current folder.

    A command before it installs each product that the wheel requires, from the `published` rows, where none is.
    """
    # --no-deps keeps the installed torch; flash-attn's other dependencies are listed, and have none themselves
    from_pypi = (name for name, pin in matrix.dependencies.items() if pin.sha256)
    required = Label.parse(row.label).requires if row.label else ()
    newest = {one.project: one for one in published if one.project in required and one.yanked is None}
    own = pip_for().install_without_dependencies(*from_pypi, _address(row))
    # not by address: pip would replace an installed aiter of AMD's. Without an index it finds only this one
    only = ("--no-index", "--find-links")
    before = [pip_for().install_without_dependencies(*only, _address(newest[name]), name) for name in sorted(newest)]
    return " && ".join(map(shlex.join, (*before, own)))


def _address(row: WheelRow) -> str:
    return url_with_sha256(row.url, row.sha256) if row.url else f"./{row.filename}"


def install_templates() -> dict[str, tuple[str, ...]]:
    """The templates of the search page's install commands, by the name of their tab: torch first, then flash-attn.

    The page fills in ``{index}`` (an address), ``{version}`` (with the label), ``{torch}``, ``{rocm}``, ``{triton}``
    (the name of torch's Triton package), ``{torch-index}`` (an address) and ``{python}`` (a requires-python). Of
    the two projects, the second is for a wheel that takes its kernels from aiter.
    """
    # the local version matters: pip would accept an installed CUDA build for a plain torch==2.9.1
    project = page_templates().get_template("project.toml.j2")
    lines = {"pyproject.toml": tuple(project.render(aiter=name) for name in ("", AITER_NAME))}
    for name, one in (("uv", uv_for()), ("pip", pip_for())):
        torch = one.install_torch("torch=={torch}+rocm{rocm}", index="{torch-index}")
        flash_attn = one.install_from_index("{index}", "flash-attn=={version}")
        lines = {name: (" ".join(torch), " ".join(flash_attn)), **lines}
    return lines


def smoke_test_line(row: WheelRow, folder: Path, matrix: Matrix) -> str:
    """The install command for a machine without ROCm: the wheel with CPU torch and the cell's Triton, all pinned."""
    triton = matrix.torch[Cell.parse(str(row.cell)).torch].triton
    options = [*cpu_torch_options(), "--find-links", str(folder.resolve() / WHEELS_FOLDER)]
    pins = [cpu_torch_requirement(), f"triton=={triton}", f"flash-attn=={row.version}"]
    return shlex.join([*pip_for().install_command, *options, *pins])


def pick_smoke_test_wheel(rows: Sequence[WheelRow], matrix: Matrix) -> WheelRow | None:
    """The newest Triton wheel for the torch version whose CPU build is used; it runs without ROCm. None without one."""
    held = {row.cell: row for row in rows if row.cell and not row.yanked}
    axes, torch = product(matrix.flash_attn, matrix.rocm), cpu_torch_version()
    wanted = (Cell.from_axes(release, ANY_PYTHON, torch, rocm, Backend.TRITON).id for release, rocm in axes)
    return next((held[cell] for cell in wanted if cell in held), None)
