"""Parse a compile command from a log: compiler, source, archs, header directories, and the meaning of each flag."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from wheelfactory.explain.glossary import glossary
from wheelfactory.kernels.compiler.hipcc import HEADER_OPTIONS, kernel_name, split_options

_COMPILER = re.compile(r"(?:^|/)(?:hipcc|nvcc|clang\+\+(?:-\d+)?|amdclang\+\+|g\+\+(?:-\d+)?|c\+\+)$")
_STATUS = re.compile(r"^\[\d+/\d+\] ")
_ROCM = re.compile(r"/rocm-(\d+\.\d+(?:\.\d+)?)(?:/|$)")
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
    match = _ROCM.search(str(PurePosixPath(compiler).parent))
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
