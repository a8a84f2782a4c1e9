"""Parse a compile command from a log and the name of its kernel, and explain each flag and each part of the name.

Of the command also: compiler, source, archs and header directories.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from wheelfactory.core.gpus import FAMILIES
from wheelfactory.explain.glossary import Operation, glossary
from wheelfactory.kernels.compiler.hipcc import HEADER_OPTIONS, kernel_name, split_options
from wheelfactory.kernels.compiler.targets import parse_kernel_name

_COMPILER = re.compile(r"(?:^|/)(?:hipcc|nvcc|clang\+\+(?:-\d+)?|amdclang\+\+|g\+\+(?:-\d+)?|c\+\+)$")
_STATUS = re.compile(r"^\[\d+/\d+\] ")
_CUDA_CODE = re.compile(r"\bcode=\[?(sm_\w+)|^-arch=(sm_\w+)")
# nvcc's options whose value can be the next word (nvcc's manual)
_WITH_VALUE = ("-gencode", "-arch", "--threads", "--compiler-options", "-Xcompiler", "-ccbin", "--dependency-output")
_SOURCES = (".hip", ".cu", ".cpp", ".cc", ".cxx", ".c")


@dataclass(frozen=True)
class Flag:
    """One flag, including its value if that is a separate argument."""

    text: str
    meaning: str
    set_by: str
    """flash-attn, torch or wheelfactory; empty for a flag that anyone can set."""


@dataclass(frozen=True)
class CompilerCommand:
    """A compile command."""

    compiler: str
    rocm: str
    """The version in the compiler's path, ``7.2.0``; empty if the path has none."""
    launcher: tuple[str, ...]
    """The words before the compiler, such as ccache."""
    source: str
    output: str
    archs: tuple[str, ...]
    headers: tuple[tuple[str, str], ...]
    """Header directories, each with the project that owns it."""
    flags: tuple[Flag, ...]
    unknown: tuple[str, ...]
    """Flags that the glossary does not list."""
    arguments: tuple[str, ...]
    """All words after the compiler."""

    @property
    def is_cuda(self) -> bool:
        """Whether it compiles for NVIDIA GPUs."""
        return self.compiler.endswith("nvcc")

    @property
    def name(self) -> str:
        """The name of the source, without directory and extension."""
        return kernel_name(self.source)


def find_compiler_command(line: str) -> CompilerCommand | None:
    """Parse the compile command in a line, with or without ninja's ``[n/m]``; None if the line is not one.

    Parses a truncated line as far as possible.
    """
    if not (" -c " in line or " --offload-arch=" in line or " -o " in line):
        return None
    text = _STATUS.sub("", line)
    try:
        words = shlex.split(text)
    except ValueError:  # truncated within quotes
        words = text.split()
    at = next((index for index, word in enumerate(words) if _COMPILER.search(word)), None)
    if at is None or any(word.startswith("-") and word not in ("-ISB", "-I", "-S", "-B") for word in words[:at]):
        return None
    arguments = tuple(words[at + 1 :])
    if words[at].endswith("nvcc"):
        arguments = tuple(_join_values(arguments))
    source = next((word for word in arguments if word.endswith(_SOURCES) and not word.startswith("-")), "")
    return _parse_arguments(words[at], tuple(words[:at]), source, arguments) if source else None


def _join_values(words: Iterable[str]) -> Iterator[str]:
    """Join nvcc's options with their values: ``-gencode=arch=compute_80,code=sm_80``."""
    remaining = iter(words)
    for word in remaining:
        value = next(remaining, "") if word in _WITH_VALUE else ""
        yield f"{word}={value}" if value else word


def _parse_arguments(compiler: str, launcher: tuple[str, ...], source: str, words: tuple[str, ...]) -> CompilerCommand:
    flags: dict[str, Flag] = {}
    unknown: dict[str, None] = {}
    headers: dict[str, str] = {}
    output, archs = "", []
    for option, value in split_options(words):
        if option == "-o":
            output = value
        elif option in HEADER_OPTIONS:
            folders = glossary().header_folders.items()
            headers.setdefault(value, next((whose for part, whose in folders if part in value), "another"))
        elif option.startswith(("--offload-arch=", "--amdgpu-target=")):
            archs.append(option.partition("=")[2])
        elif option:
            archs += (name for names in _CUDA_CODE.findall(option) for name in names if name)
            text = option + value if option in ("-D", "-U") else f"{option} {value}".rstrip()
            if known := glossary().find_flag_meaning(text):
                flags.setdefault(text, Flag(text, *known))
            else:
                unknown.setdefault(text)
        elif value != source:
            unknown.setdefault(value)
    match = re.search(r"/rocm-(\d+\.\d+(?:\.\d+)?)(?:/|$)", str(PurePosixPath(compiler).parent))
    return CompilerCommand(
        compiler=compiler,
        rocm=match[1] if match else "",
        launcher=launcher,
        source=source,
        output=output,
        archs=tuple(dict.fromkeys(archs)),
        headers=tuple(headers.items()),
        flags=tuple(flags.values()),
        unknown=tuple(unknown),
        arguments=words,
    )


# upstream's files for CUDA (csrc/flash_attn/src)
_CUDA_NAME = re.compile(r"flash_(fwd|bwd|fwd_split)_hdim(\d+)_(fp16|bf16)(_causal)?(?:_sm\d+)?")
_PADDED = ("queries", "keys", "head dim of Q", "head dim of V")


@dataclass(frozen=True)
class NamePart:
    """A part of a name and its meaning."""

    text: str
    meaning: str


@dataclass(frozen=True)
class KernelMeaning:
    """The meaning of a generated source's name."""

    name: str
    direction: str
    """``forward`` or ``backward``."""
    operation: str
    """What it computes."""
    head_dim: str = ""
    """``128``, or ``192x128`` if V has a different one; empty for the file that selects kernels."""
    type: str = ""
    """``bf16``; empty for the file that selects kernels."""
    mode: str = ""
    """``batch`` or ``group``; empty if the name has neither."""
    arch: str = ""
    """``gfx9``: its arch family; empty for all archs (flash-attn up to 2.8.3)."""
    parts: tuple[NamePart, ...] = ()
    """The other parts in order: tile, warps, pipeline, padding, options."""
    unknown: tuple[str, ...] = ()
    """Parts that the glossary does not list."""

    @property
    def family(self) -> str:
        """A description of the archs it has code for; empty if its name has none."""
        return FAMILIES.get(self.arch, self.arch)


def find_kernel_meaning(name: str) -> KernelMeaning | None:
    """Explain the name of a kernel source (without directory and extension); None if it is not of flash-attn's kernels.

    These are CK's generated sources, and upstream's files for CUDA.
    """
    if match := _CUDA_NAME.fullmatch(name):
        return _cuda_kernel(match)
    parsed = parse_kernel_name(name)
    known = glossary().operations.get(parsed.operation) if parsed else None
    if parsed is None or known is None:
        return None
    if parsed.is_api:
        chooses = f"chooses the {parsed.operation} kernel for a call, at run time"
        rest = (parsed.rest,) * bool(parsed.rest)
        return KernelMeaning(name, known.direction, chooses, arch=parsed.arch, unknown=rest)
    if parsed.type not in glossary().types:
        return None
    parts, unknown = _parts(known, parsed.rest[len(parsed.type) + 1 :])
    return KernelMeaning(
        name=name,
        direction=known.direction,
        operation=known.meaning,
        head_dim=parsed.head_dim,
        type=parsed.type,
        mode=next((part.text for part in parts if part.text in ("batch", "group")), ""),
        arch=parsed.arch,
        parts=tuple(parts),
        unknown=tuple(unknown),
    )


def _cuda_kernel(match: re.Match[str]) -> KernelMeaning:
    known = glossary().operations[{"fwd_split": "fwd_splitkv"}.get(match[1], match[1])]
    parts = (NamePart("causal", "causal mask"),) if match[4] else ()
    return KernelMeaning(match[0], known.direction, known.meaning, match[2], match[3], parts=parts)


def _parts(operation: Operation, text: str) -> tuple[list[NamePart], list[str]]:
    """Split the rest of a name into known parts and unknown ones; the longest matching part wins."""
    fixed = glossary().name_parts
    parts: list[NamePart] = []
    unknown: list[str] = []
    seen: Counter[str] = Counter()
    while text:
        fitting = [word for word in fixed if text == word or text.startswith(f"{word}_")]
        word = max(fitting, key=len, default=text.partition("_")[0])
        if meaning := fixed.get(word) or _explain_sized_part(operation, word, seen):
            parts.append(NamePart(word, meaning))
        else:
            unknown.append(word)
        text = text[len(word) + 1 :]
    return parts, unknown


def _explain_sized_part(operation: Operation, word: str, seen: Counter[str]) -> str | None:
    """Return the meaning of a part with numbers, None if unknown; `seen` counts tiles, warps and matrices."""
    if match := re.fullmatch(r"([brw])(\d+(?:x\d+)*)", word):
        letter, numbers = match.groups()
        position = seen[letter]
        seen[letter] += 1
        if letter == "b":
            sizes = numbers.split("x")
            tile = ", ".join(f"{size} {name}" for size, name in zip(sizes, operation.tile, strict=False))
            return f"tile: {tile}" if len(sizes) == len(operation.tile) else None
        label, names = ("warps", operation.warp_labels) if letter == "r" else ("matrix", operation.mfma_labels)
        return f"{label}: {numbers} for {names[position] if position < len(names) else f'product {position}'}"
    if match := re.fullmatch(r"o(-?\d+)", word):
        return f"occupancy: {match[1]} per compute unit" if match[1] != "-1" else "occupancy: not limited"
    if match := re.fullmatch(r"maxq(\d+)", word):
        return "any number of queries" if match[1] == "0" else f"at most {match[1]} queries"
    return _explain_padding(word)


def _explain_padding(word: str) -> str | None:
    """Explain ``pssk`` or ``pd8dv8``: the sizes that need not be multiples of the tile; None for another part.

    The generator of 2026 adds the multiple that a head dim needs: ``8`` for a multiple of 8, ``1`` for any size.
    """
    match = re.fullmatch(r"p(s)?(sk)?(?:(d)([0-9]*))?(?:(dv)([0-9]*))?", word)
    if match is None or word == "p":
        return None
    s, sk, d, d_multiple, dv, dv_multiple = match.groups()
    padded = []
    for name, letters, multiple in zip(_PADDED, (s, sk, d, dv), ("", "", d_multiple, dv_multiple), strict=True):
        if letters:
            needs = "" if not multiple else " (any)" if multiple == "1" else f" (a multiple of {multiple})"
            padded.append(f"{name}{needs}")
    return f"padded: {', '.join(padded)}"
