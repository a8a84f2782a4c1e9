"""What a kernel is compiled for, what its name says, and for which archs its source has device code.

A target is an arch (device code) or `HOST` (host code); an object has the code of all its targets. The code for one
target does not depend on the others, so each is compiled and kept by itself, and `objects` puts the object together.

Names such as ``fmha_bwd_d128_bf16_batch_..._gfx9`` and ``fmha_fwd_splitkv_api`` come from the generators of Composable
Kernel (example/ck_tile/01_fmha/codegen/ops/*.py), up to August 2026.

Newer generators write one source for each GPU family, and setup.py compiles every source for every arch. For an arch
that the guard of a source excludes, the device code is, byte for byte, that of an empty file with the same name, which
takes half a second (the samples verify that).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType

HOST = "host"
"""The target of host code; every other target is an arch."""

ARCH_OPTION = "--offload-arch="

# affects host code only: device code has the same bytes with both values (measured)
_HOST_MACRO = "-D_GLIBCXX_USE_CXX11_ABI="


def split_targets(archs: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Return one list of targets for each arch, and one for host code."""
    return (*((arch,) for arch in archs), (HOST,))


def whole_targets(archs: Sequence[str]) -> tuple[str, ...]:
    """The targets of a whole object, which one ordinary compile makes."""
    return (*archs, HOST)


def compiled_sources(names: Iterable[str], targets: Sequence[str]) -> list[str]:
    """Return the sources that are compiled for these targets, sorted by name."""
    # dispatch sources define no kernel, so their objects have no device code (the samples verify that)
    return sorted(name for name in names if HOST in targets or not is_dispatch(name))


def target_flags(flags: Iterable[str], targets: Sequence[str]) -> list[str]:
    """Return the flags of a kernel that affect the code for these targets, without the archs."""
    dropped = (ARCH_OPTION,) if HOST in targets else (ARCH_OPTION, _HOST_MACRO)
    return [flag for flag in flags if not flag.startswith(dropped)]


def target_options(targets: Sequence[str], archs: Sequence[str], placeholder: str) -> list[str]:
    """Return the options that make hipcc compile for these targets only.

    `archs`: of the whole object; `placeholder` is the file that host code gets for its fat binary.
    """
    if len(targets) > 1:
        return [f"{ARCH_OPTION}{arch}" for arch in targets if arch != HOST]
    if HOST in targets:
        # hipcc asks for an arch, and host code is the same for all of them
        embed = ("-Xclang", "-fcuda-include-gpubinary", "-Xclang", placeholder)
        return [f"{ARCH_OPTION}{archs[0]}", "--cuda-host-only", *embed]
    return [f"{ARCH_OPTION}{targets[0]}", "--cuda-device-only", "--no-gpu-bundle-output"]


_NAME = re.compile(
    r"fmha_(?P<operation>[a-z_]+?)_(?:api|d(?P<head_dim>[0-9]{1,4}(?:x[0-9]{1,4})?))"
    r"(?:_(?P<rest>.*?))??(?:_(?P<arch>gfx[0-9a-f]+))?"
)


@dataclass(frozen=True)
class KernelName:
    """The parts of a name that all releases share."""

    operation: str
    """What the kernel computes: ``fwd``, ``bwd_dot_do_o``."""
    head_dim: str
    """``128``, or ``192x128`` if V has another head dimension; empty for an API source."""
    rest: str
    """The rest of the name: the data type, then tile, warps, pipeline, padding and options, joined by ``_``."""
    arch: str
    """The GPU family, such as ``gfx9``; empty for all families (flash-attn up to 2.8.3)."""

    @property
    def is_api(self) -> bool:
        """Whether the source selects a kernel at run time instead of defining one."""
        return not self.head_dim

    @property
    def type(self) -> str:
        """The data type, such as ``bf16``; empty for an API source."""
        return "" if self.is_api else self.rest.partition("_")[0]


def parse_kernel_name(name: str) -> KernelName | None:
    """Parse the name of a source, without folder and extension; None if no generator writes such a name."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    return KernelName(match["operation"], match["head_dim"] or "", match["rest"] or "", match["arch"] or "")


def is_dispatch(name: str) -> bool:
    """Whether a generated source (name without extension) chooses a kernel for a call, and is no kernel itself."""
    kernel = parse_kernel_name(name)
    return kernel is not None and kernel.is_api


Guards = Mapping[str, str]
"""By the name of a source, its condition on archs (`read_guard`); a source without one is not in it."""
NO_GUARDS: Guards = MappingProxyType({})

_GUARD = re.compile(r"if\s+!defined\(__HIP_DEVICE_COMPILE__\)\s*\|\|\s*\((.+)\)")
_HARMLESS = ("include", "define", "undef")
"""Directives before the guard that leave no device code."""
_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_OPERATORS = {"&&": "and", "||": "or", "!": "not", "(": "(", ")": ")"}
_TOKEN = re.compile(r"\s*(defined\(\w+\)|&&|\|\||[!()])\s*")

# what clang and CK define for archs; source: ck_tile/core/config.hpp of Composable Kernel, 2026
_FAMILIES = {"__gfx9__": "gfx9", "__gfx11__": "gfx11", "__gfx115__": "gfx115", "__gfx12__": "gfx12"}
_ARCH_MACRO = re.compile("__(gfx9[0-9a-f]{2}|gfx1[0-9a-f]{3})__")


@cache
def read_guard(source: str) -> str:
    """Return the preprocessor condition around the whole source (a path); empty if there is none.

    Without a condition, assume that the source has device code for every arch.
    """
    text = _COMMENTS.sub("", Path(source).read_text(encoding="utf-8", errors="replace"))
    lines = [line for line in map(str.strip, text.splitlines()) if line]
    directives = [line.removeprefix("#").lstrip() if line.startswith("#") else "" for line in lines]
    first = next((number for number, line in enumerate(directives) if not line.startswith(_HARMLESS)), None)
    if first is None:
        return ""
    found = _GUARD.fullmatch(directives[first])
    return found[1] if found and _encloses(directives[first:]) else ""


def _encloses(directives: list[str]) -> bool:
    """Whether the ``#if`` of the first line ends with the last one, and has no other branch."""
    depth = 0
    for number, line in enumerate(directives, 1):
        depth += line.startswith("if") - line.startswith("endif")
        is_end = depth == 0 and number < len(directives)
        if is_end or (depth == 1 and line.startswith(("else", "elif"))):
            return False
    return depth == 0


@cache
def has_code(guard: str, arch: str) -> bool:
    """Whether a source with this guard has device code for an arch; true if that cannot be said."""
    tokens = _TOKEN.findall(guard)
    if "".join(tokens) != re.sub(r"\s", "", guard):
        return True
    try:  # the operators of C and Python have the same precedence
        return _evaluate(ast.parse(" ".join(_to_python(token, arch) for token in tokens), mode="eval").body)
    except (SyntaxError, ValueError):
        return True


def is_empty(guard: str, targets: Sequence[str]) -> bool:
    """Whether a source with this guard has no device code for the one arch that it is compiled for."""
    return len(targets) == 1 and targets[0] != HOST and not has_code(guard, targets[0])


def _to_python(token: str, arch: str) -> str:
    """Translate a token, and a macro to whether it is defined. Raises `ValueError` for a macro that is not of archs."""
    if not token.startswith("defined"):
        return _OPERATORS[token]
    macro = token.removeprefix("defined(").removesuffix(")")
    if macro in _FAMILIES:
        return str(re.fullmatch(_FAMILIES[macro] + "[0-9a-f]{1,2}", arch) is not None)
    exact = _ARCH_MACRO.fullmatch(macro)
    if not exact:
        raise ValueError(f"not a macro of archs: {macro}")
    return str(exact[1] == arch)


def _evaluate(node: ast.expr) -> bool:
    if isinstance(node, ast.BoolOp):
        values = [_evaluate(value) for value in node.values]  # each, so that a malformed one is noticed
        return all(values) if isinstance(node.op, ast.And) else any(values)
    if isinstance(node, ast.UnaryOp):
        return not _evaluate(node.operand)
    if not isinstance(node, ast.Constant):
        raise ValueError("parentheses without an operator")
    return bool(node.value)
