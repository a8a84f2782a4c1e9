"""The fields of a request -> what is wished for, in values that the matrix knows; nothing is guessed.

Versions are taken as people write them: ``torch 2.9.1+rocm6.4``, ``v2.8.3``, ``Python 3.11.7``, ``cp311``, ``MI300X``.
No text of a request leaves this module but digits and dots.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from packaging.version import Version

from wheelfactory.core.cell import Backend, Cell, same_rocm
from wheelfactory.core.gpus import PRODUCTS
from wheelfactory.matrix.facts import Matrix
from wheelfactory.site.request import Field

_VERSION = re.compile(
    r"(?<![\w.])v?(?P<release>\d{1,3}(?:\.\d{1,5}){1,3})(?:\.?(?P<post>post\d{1,2})|(?:\.?dev|a|b|rc)\d+)?(?![\w.]*\w)",
    re.ASCII,
)
_ROCM = re.compile(r"(?:rocm|hip)[\s_-]*v?(\d{1,2}\.\d{1,2}|\d\d(?!\d))(?:\.\d+)*", re.ASCII)
_PYTHON = re.compile(r"(?:python|py|cp)[\s_-]*3\.?\d*[\d.]*", re.ASCII)
_SHORT_PYTHON = re.compile(r"(?<![\w.])(?:cp|py)?3(\d{1,2})(?![\w.])", re.ASCII)
_INDIFFERENT = ("any", "all", "either", "both", "-", "n/a", "no preference", "unknown", "not sure", "i don't know")


@dataclass(frozen=True)
class Reading:
    """What a field says: `values` of the matrix that it may mean, or all if that is None."""

    values: tuple[str, ...] | None = None
    unknown: str = ""
    """A version, of digits and dots (or a backend), that the matrix does not have; `values` is empty then."""
    trouble: str = ""
    """Why it could not be understood; a sentence of ours."""

    def takes(self, value: str) -> bool:
        """Whether `value` is among what is wished for."""
        return self.values is None or value in self.values


@dataclass(frozen=True)
class Wish:
    """What a request says of each axis, and of the GPU in offload archs."""

    readings: Mapping[Field, Reading]

    def takes(self, cell: Cell, pythons: Sequence[str], archs: Sequence[str]) -> bool:
        """Whether the wheel of a cell for these Pythons and archs is what is wished for."""
        return self.fits(cell, pythons) and any(map(self.readings[Field.GPU].takes, archs))

    def fits(self, cell: Cell, pythons: Sequence[str]) -> bool:
        """The same, whatever the GPU."""
        axes = {
            Field.FLASH_ATTN: cell.flash_attn,
            Field.TORCH: cell.torch,
            Field.ROCM: cell.rocm,
            Field.BACKEND: str(cell.backend),
        }
        return any(map(self.readings[Field.PYTHON].takes, pythons)) and all(
            self.readings[field].takes(value) for field, value in axes.items()
        )


def read_wish(fields: Mapping[Field, str], matrix: Matrix) -> Wish:
    """What the fields mean."""
    text = {field: " ".join(fields.get(field, "").lower().split()) for field in Field}
    readings: dict[Field, Reading] = {
        Field.TORCH: _torch(text[Field.TORCH], matrix),
        Field.ROCM: _rocm(text[Field.ROCM], text[Field.TORCH], matrix),
        Field.PYTHON: _optional(text[Field.PYTHON], lambda given: _python(given, matrix)),
        Field.GPU: _optional(text[Field.GPU], _gpu),
        Field.FLASH_ATTN: _optional(text[Field.FLASH_ATTN], lambda given: _flash_attn(given, matrix)),
        Field.BACKEND: _optional(text[Field.BACKEND], lambda given: _backend(given, matrix)),
    }
    return Wish(readings)


def _optional(text: str, read: Callable[[str], Reading]) -> Reading:
    return Reading() if not text or text in _INDIFFERENT else read(text)


def _versions(text: str) -> list[str]:
    """The different versions in a text, each normalized."""
    found = (".".join(filter(None, match.group("release", "post"))) for match in _VERSION.finditer(text))
    return list(dict.fromkeys(found))


def _one(text: str, fit: Callable[[str], Iterable[str]]) -> Reading:
    """The reading of a text in which all versions mean the same; `fit` gives the known ones that each may mean."""
    versions = _versions(text)
    fitting = {tuple(fit(version)) for version in versions}
    if not versions:
        return Reading((), trouble="no version is in it")
    if len(fitting) > 1 or (fitting == {()} and len(versions) > 1):
        return Reading((), trouble="it names more than one version")
    (values,) = fitting
    return Reading(values, unknown="" if values else versions[0])


def _minor(version: str) -> tuple[int, ...]:
    return Version(version).release[:2]


def _torch(text: str, matrix: Matrix) -> Reading:
    """By major and minor, which is all that a wheel asks of torch, unless that very version is known."""
    if not text or text in _INDIFFERENT:
        return Reading((), trouble="it is needed, because a wheel fits one torch")
    if re.search(r"\+cpu|cuda|\+cu\d", text):
        return Reading((), trouble="that torch is not one for ROCm, which these wheels need")
    bare = re.sub(r"\+\S*", " ", _PYTHON.sub(" ", _ROCM.sub(" ", text)))

    def fit(version: str) -> list[str]:
        return [version] if version in matrix.torch else [own for own in matrix.torch if _minor(own) == _minor(version)]

    return _one(re.sub(r"(?<=torch)[\s=:-]*", " ", bare), fit)


def _rocm(text: str, torch: str, matrix: Matrix) -> Reading:
    """By major and minor; if the field is empty, what the version of torch says. Both must agree."""

    def fit(version: str) -> list[str]:
        return [own for own in matrix.rocm if same_rocm(own, version)]

    stated = list(dict.fromkeys(map(_dotted, _ROCM.findall(torch))))
    of_torch = _one(stated[0], fit) if stated else Reading()
    if not text or text in _INDIFFERENT:
        return of_torch
    own = list(dict.fromkeys(map(_dotted, _ROCM.findall(text)))) or _versions(text)
    found = _one(" ".join(own), fit)
    if stated and not found.trouble and not same_rocm(stated[0], own[0]):
        return Reading((), trouble="the version of torch names another ROCm; a wheel must match that of torch")
    return found


def _dotted(version: str) -> str:
    """``6.4`` for ``64``, as labels write it."""
    return version if "." in version else f"{version[0]}.{version[1]}"


def _python(text: str, matrix: Matrix) -> Reading:
    dotted = _SHORT_PYTHON.sub(r" 3.\1 ", text)
    return _one(
        re.sub(r"(?:python|py|cp)[\s_-]*(?=3)", " ", dotted),
        lambda version: [own for own in matrix.python if _minor(own) == _minor(version)],
    )


def _flash_attn(text: str, matrix: Matrix) -> Reading:
    """That very release, or all of ``2.8``; the last digit of a release matters."""
    if text in ("latest", "newest"):
        return Reading()

    def fit(version: str) -> list[str]:
        parts = version.count(".") + 1
        return [
            own
            for own in matrix.flash_attn
            if Version(own) == Version(version) or (parts == 2 and _minor(own) == _minor(version))
        ]

    bare = re.sub(r"\+\S*", " ", re.sub(r"(?:flash[-_ ]?att(?:n|ention)|\bfa)[-_=\s]*(?=v?\d)", " ", text))
    return _one(bare, fit)


def _backend(text: str, matrix: Matrix) -> Reading:
    named = [Backend.CK] if re.search(r"\bck\b|composable", text) else []
    named += [Backend.TRITON] if "triton" in text else []
    if not named:
        return Reading((), trouble="it names no backend")
    values = tuple(str(backend) for backend in named if backend in matrix.backend)
    return Reading(values, unknown="" if values else str(named[0]))


def _gpu(text: str) -> Reading:
    """The one offload arch of a text such as ``gfx942``, ``MI300X`` or ``RX 7900 XTX``."""
    named = list(dict.fromkeys(re.findall(r"\bgfx[0-9a-f]{3,4}\b", text)))
    archs = named or [arch for arch, models in _MODELS.items() if any(_is_named(model, text) for model in models)]
    if len(archs) != 1:
        return Reading((), trouble="it may be one of several" if archs else "no GPU that is known here is named in it")
    return Reading(tuple(archs))


def _models(products: Sequence[str]) -> tuple[str, ...]:
    """The names of single products by which they are told apart: ``mi300x``, ``7900``, ``strix halo``."""
    text = ", ".join(products).lower()
    names = re.findall(r"\((?:[^()]*?\b)?(strix \w+|raphael)\)", text)
    names += [name for name in ("radeon vii", "ryzen ai max") if name in text]
    return tuple(names + re.findall(r"\b(?=[a-z]*\d{2})(?!7000\b)\w{3,}", text))


_MODELS = {arch: _models(products) for arch, products in PRODUCTS.items()}


def _is_named(model: str, text: str) -> bool:
    """Whether a product is in a text, with letters written on to it (``7900XTX``) or without its last (``MI300``).

    A laptop's ``6800M`` has another arch than a 6800, so other letters make it another product.
    """
    if " " in model or not any(character.isdigit() for character in model):
        return model in text
    family = model.rstrip("abcdefghijklmnopqrstuvwxyz") if model.startswith("mi") else model
    return bool(re.search(rf"\b(?:{model}(?:xtx|xt|gre)?|{family})\b", text))
