"""Cell: the axes that identify one wheel, and the cell id, its one name everywhere. Products have no cell."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from itertools import chain

from wheelfactory.core.errors import InputError

FLASH_ATTN_NAME = "flash-attn"
"""The project of every wheel that has a cell."""

FALLBACK_NAME = "flash-attention-amd"
"""flash-attn's functions in pure PyTorch."""

FLASH_ATTN_FALLBACK = "flash-attn-fallback"
"""The product whose project is flash-attn, and whose modules re-export `FALLBACK_NAME`."""

AITER_NAME = "amd-aiter"
"""The project with the Triton kernels of previews."""

ANY_PYTHON = "3"
"""The Python of a wheel without an extension module, tagged ``py3``."""

_ID = re.compile(
    r"fa(?P<flash_attn>[0-9][0-9a-z.]*(?:\+git[0-9a-f]{7})?)"
    r"-rocm(?P<rocm>[0-9][0-9a-z.]*)-torch(?P<torch>[0-9][0-9a-z.]*?)(?P<amd>amd)?"
    r"-(?:cp3(?P<minor>[1-9][0-9]*)|py3)-(?P<backend>ck|triton)"
)

MAX_REPLACEMENTS = 26
"""Replacements of the wheel of one build of a cell: each has its own letter in the build tag."""
_NAME = re.compile("(.+?)(?::([1-9]|1[0-9]|2[0-6]))?")


class Backend(str, Enum):
    """The kernels of a wheel: compiled Composable Kernel code, or Triton source."""

    CK = "ck"
    TRITON = "triton"

    def __str__(self) -> str:
        return self.value

    @property
    def display_name(self) -> str:
        """The spelling for people: ``CK``, ``Triton``."""
        return "CK" if self is Backend.CK else "Triton"


@dataclass(frozen=True)
class Cell:
    """One wheel to build. Versions are strings as in matrix.yaml, because ``2.10`` is not ``2.1``."""

    flash_attn: str
    python: str
    """``3.11``, or `ANY_PYTHON` for a Triton cell, whose one wheel serves every Python."""
    torch: str
    rocm: str
    backend: Backend
    amd_torch: bool = False
    """Whether it is for AMD's own build of torch, in images of rocm/pytorch: its C++ symbols are not PyTorch's."""

    @property
    def public_version(self) -> str:
        """The version of flash-attn in the wheel's name, such as ``2.8.4``: without the commit of a preview."""
        return public_version(self.flash_attn)

    @property
    def commit(self) -> str:
        """The seven hex digits of the commit that a preview is built from; empty for a release."""
        return preview_commit(self.flash_attn)

    @property
    def requires(self) -> tuple[str, ...]:
        """The names of the products that the wheel requires."""
        return required_products(self.backend, self.commit)

    @property
    def uses_aiter(self) -> bool:
        """Whether the wheel takes its kernels from aiter: flash-attn's Triton backend does since 2.8.3."""
        return AITER_NAME in self.requires

    @property
    def python_tag(self) -> str:
        """The wheel's python tag: ``cp311``, or ``py3`` for a wheel without an extension module."""
        return "py3" if self.python == ANY_PYTHON else "cp" + self.python.replace(".", "")

    @property
    def id(self) -> str:
        """The cell id, such as ``fa2.8.3-rocm6.4-torch2.9.1-cp311-ck``: job, artifact, log and selector name."""
        return f"fa{self.flash_attn}-rocm{self.rocm}-torch{self.torch_text}-{self.python_tag}-{self.backend}"

    @property
    def torch_text(self) -> str:
        """``2.9.1``, or ``2.9.1amd`` for AMD's own build."""
        return f"{self.torch}{'amd' if self.amd_torch else ''}"

    @classmethod
    def from_axes(
        cls, flash_attn: str, python: str, torch: str, rocm: str, backend: Backend, *, amd_torch: bool = False
    ) -> Cell:
        """Create the cell of a combination; all Pythons of a Triton combination share one cell."""
        # upstream's setup.py builds Triton wheels as py3-none-any, so one wheel serves every Python
        return cls(flash_attn, ANY_PYTHON if backend is Backend.TRITON else python, torch, rocm, backend, amd_torch)

    @classmethod
    def parse(cls, text: str) -> Cell:
        """Parse a cell id, the inverse of `id`. Raises `InputError` if `text` is not a cell id."""
        match = _ID.fullmatch(text)
        if match is None:
            hint = "a cell id looks like fa2.8.3-rocm6.4-torch2.9.1-cp311-ck; `wheelfactory plan --all` lists them"
            raise InputError("not a cell id", text, hint)
        python = f"3.{match['minor']}" if match["minor"] else ANY_PYTHON
        backend = Backend(match["backend"])
        return cls(match["flash_attn"], python, match["torch"], match["rocm"], backend, match["amd"] is not None)


def split_names(text: str) -> dict[str, int]:
    """Split the names of cells to build and of products, which blanks separate: ids, each with its replacement.

    A cell has its replacement of a published wheel after a colon; it is 0 without one.
    """
    return {match[1]: int(match[2] or 0) for name in text.split() if (match := _NAME.fullmatch(name))}


def name_python(tag: str) -> str:
    """Name the Python of a tag: ``3.11`` for cp311, ``3.13 free-threaded`` for cp313t, ``PyPy 3.10`` for pp310."""
    match = re.fullmatch(r"(cp|pp)(\d)(\d+)(t?)", tag)
    if match is None:
        return tag
    return f"{'PyPy ' if match[1] == 'pp' else ''}{match[2]}.{match[3]}{' free-threaded' if match[4] else ''}"


def public_version(version: str) -> str:
    """Return a version without its local part: ``2.8.3`` for ``2.8.3+rocm62torch2.5``."""
    return version.partition("+")[0]


def local_version(version: str) -> str:
    """Return the local part of a version: ``rocm62torch2.5`` for ``2.8.3+rocm62torch2.5``; empty without one."""
    return version.partition("+")[2]


@dataclass(frozen=True)
class Product:
    """A project that the factory builds beside flash-attn: its wheel is the same for every ROCm and torch.

    The other parts of a product: `build.products` (sources and build) and `verify.gates` (contents and gates).
    """

    name: str
    """Its name on the command line, in jobs and in logs: the normalized project name but for `FLASH_ATTN_FALLBACK`."""
    required_by: Callable[[Backend, str], bool] | None = None
    """Whether a flash-attn wheel of this backend and commit (empty for a release) requires it, so that only the indexes
    with such wheels list it. None: no wheel requires it, and every release and index offers it."""
    listed_for: str = ""
    """The wheels that require it, for people."""


_AITER = Product(AITER_NAME, lambda backend, commit: backend is Backend.TRITON and commit != "", "Triton previews")
PRODUCTS = {one.name: one for one in (Product(FALLBACK_NAME), Product(FLASH_ATTN_FALLBACK), _AITER)}
"""The products by name."""

OFFERED_PRODUCTS = tuple(product.name for product in PRODUCTS.values() if product.required_by is None)
"""The names of the products that no wheel requires."""


def product_name(project: str, version: str) -> str:
    """Return the name of the product that a project is in a version; of any other project, its own name."""
    is_fallback = (project, local_version(version)) == (FLASH_ATTN_NAME, "fallback")
    return FLASH_ATTN_FALLBACK if is_fallback else project


def required_products(backend: Backend, commit: str) -> tuple[str, ...]:
    """Return the names of the products that the flash-attn wheel of a backend and commit requires."""
    every = PRODUCTS.values()
    return tuple(product.name for product in every if product.required_by and product.required_by(backend, commit))


def products_beside(cells: Iterable[Cell]) -> tuple[str, ...]:
    """Return the names of the products in a release of these cells: those that one requires, and all offered ones."""
    required = [cell.requires for cell in cells]
    return tuple(name for name in PRODUCTS if required and (name in OFFERED_PRODUCTS or name in chain(*required)))


def preview_commit(flash_attn: str) -> str:
    """Return the commit in a version of matrix.yaml: ``4a948e9`` for ``2.8.4+git4a948e9``, empty for a release."""
    return flash_attn.partition("+git")[2]


def name_flash_attn(flash_attn: str) -> str:
    """Return a version of matrix.yaml for people: ``2.8.3``, or ``2.8.4 preview (commit 4a948e9)``."""
    public, _, commit = flash_attn.partition("+git")
    return f"{public} preview (commit {commit})" if commit else public


def same_rocm(one: str, other: str) -> bool:
    """Whether two ROCm or HIP versions have the same major and minor, which is all that a wheel depends on."""
    return one.split(".")[:2] == other.split(".")[:2]


def major_minor(version: str) -> tuple[int, int]:
    """Parse the first two numbers of a version: ``2.9.1`` is (2, 9), ``7.14.0a2`` is (7, 14), ``7`` is (7, 0)."""
    numbers = re.match(r"(\d+)(?:\.(\d+))?", version, re.ASCII)
    assert numbers, version  # versions of cells and of torch all start with a digit
    return int(numbers[1]), int(numbers[2] or 0)
