"""What upstream asks of hipcc -> what a generated kernel needs: the same words in every cell that shares it.

Imported by the launcher, once an object, so it imports next to nothing itself.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # what typing has of that name; typing itself takes longer to import than all else here
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

APPEND_VARIABLE = "HIPCC_COMPILE_FLAGS_APPEND"
"""Flags that hipcc adds to its command line by itself, where no compiler cache sees them (measured: both ccache and
sccache then serve wrong objects). The launcher puts them on the command line instead."""

COMPILER_ENVIRONMENT = (
    *("HIP_PATH", "HIP_CLANG_PATH", "HIP_DEVICE_LIB_PATH", "DEVICE_LIB_PATH", "HIP_PLATFORM", "HIP_COMPILER"),
    *("HIP_RUNTIME", "HIP_ROCCLR_HOME", "HIP_COMPILE_CXX_AS_HIP", "HIP_CLANG_HCC_COMPAT_MODE", "HIP_USE_PERL_SCRIPTS"),
    *("HCC_AMDGPU_TARGET", "ROCM_PATH", "CCC_OVERRIDE_OPTIONS", "CLANG_NO_DEFAULT_CONFIG"),
    *("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH"),
)
"""Variables by which hipcc or clang make another object of the same command line (hipcc's source, clang's manual)."""

HEADER_OPTIONS = ("-I", "-isystem", "-iquote", "-idirafter")
OUTPUT_OPTIONS = ("-o", "-MF", "-MT", "-MQ")
"""Options that name what a compile writes."""
_WITH_VALUE = (
    *HEADER_OPTIONS,
    *OUTPUT_OPTIONS,
    "-D",
    "-U",
    "-x",
    "-mllvm",
    "-Xclang",
    "-Xarch_device",
    "-Xarch_host",
    "-include",
)

TORCH_ONLY = ("TORCH_", "PYBIND11_", "HIP_ENABLE_WARP_SYNC_BUILTINS")
"""Beginnings of macros that torch gives to every source and no generated kernel reads: the name of the extension,
pybind11's ABI, and a switch for `__*_sync` intrinsics, which CK does not use."""

EARLY_INLINE = "-amdgpu-early-inline-all"
FUNCTION_CALLS = "-amdgpu-function-calls"


def find_kernel_source(arguments: Sequence[str]) -> str | None:
    """The path of the generated kernel that a command line compiles; None for a binding or anything else.

    Upstream's setup.py takes all ``build/fmha_*wd*`` as generated sources, in every release.
    """
    if "-c" not in arguments:
        return None
    return next((argument for argument in arguments if _is_kernel(argument)), None)


def _is_kernel(word: str) -> bool:
    folder, name = os.path.split(word)
    is_source = name.endswith((".hip", ".cu", ".cpp")) and not word.startswith("-")
    return is_source and name.startswith("fmha_") and os.path.basename(folder) == "build"


def kernel_name(source: str) -> str:
    """The name of a generated source: that of its file, without extension."""
    return os.path.splitext(os.path.basename(source))[0]


def source_root(source: str) -> str:
    """The folder with setup.py, in whose folder ``build`` the source is."""
    return os.path.dirname(os.path.dirname(os.path.abspath(source)))


def rocm_root(hipcc: str) -> str:
    """The ROCm folder that a hipcc belongs to."""
    return os.path.dirname(os.path.dirname(os.path.abspath(hipcc)))


def has_runaway_flags(arguments: Sequence[str]) -> bool:
    """Whether both flags are there that together send some compilers into endless inlining (see `compiler`)."""
    return f"{EARLY_INLINE}=true" in arguments and f"{FUNCTION_CALLS}=false" in arguments


def kernel_flags(arguments: Sequence[str], root: str, rocm: str, *, disable_early_inline: bool) -> list[str]:
    """The flags of a command line that can reach a generated kernel, in their order; no source, no output.

    `arguments` are those after the compiler's name. Paths below `root` become relative to it, so that the same
    sources elsewhere give the same words. Headers are kept where they are the release's own or those of `rocm`:
    torch's and Python's folders differ in every cell, and no kernel includes one. `tame` takes back early inlining.
    """
    kept: list[str] = []
    for option, value in split_options(arguments):
        if option in OUTPUT_OPTIONS or (not option and _is_kernel(value)):
            continue
        if option in HEADER_OPTIONS:
            folder = _header_folder(value, root, rocm)
            if folder:
                kept += [option + folder] if option == "-I" else [option, folder]
        elif option in ("-D", "-U"):
            if not _is_torch_only(value):
                kept.append(option + value)
        elif option == "-mllvm" and disable_early_inline and value == f"{EARLY_INLINE}=true":
            kept += [option, f"{EARLY_INLINE}=false"]
        elif value:
            kept += [option, value] if option else [value]  # without one, of an option not known here, before it
        elif option not in ("-c", "-MD", "-MMD"):
            kept.append(option)
    return kept


def split_options(arguments: Sequence[str]) -> Iterable[tuple[str, str]]:
    """Each option with its value, whether it is written in one word or two; a word that is no option has no option."""
    words = iter(arguments)
    for word in words:
        if word in _WITH_VALUE:
            yield word, next(words, "")
        elif word.startswith(("-I", "-D", "-U")):
            yield word[:2], word[2:]
        elif word.startswith("-"):
            yield word, ""
        else:
            yield "", word


def _is_torch_only(macro: str) -> bool:
    """``_GLIBCXX_USE_CXX11_ABI=1`` too: torch gave it until 2.7, and it is what the standard library has by itself."""
    return macro.startswith(TORCH_ONLY) or macro == "_GLIBCXX_USE_CXX11_ABI=1"


def _header_folder(folder: str, root: str, rocm: str) -> str:
    """The folder as the kernel is told it; empty if no kernel needs it."""
    path = os.path.abspath(os.path.join(root, folder))
    if path == root or path.startswith(root + os.sep):
        return os.path.relpath(path, root)
    return path if path.startswith(rocm + os.sep) else ""


def appended_flags(environ: Mapping[str, str]) -> list[str]:
    """The flags that hipcc would add by itself."""
    text = environ.get(APPEND_VARIABLE, "")
    if not text:
        return []
    import shlex  # costs more than all else here, and is hardly ever needed

    return shlex.split(text)


def kernel_command(hipcc: str, flags: Sequence[str], source: str, output: str) -> list[str]:
    """The command that compiles a kernel, to be run in its `source_root`.

    clang makes a symbol of the words of the command line and the path of the source unless it is told an id; with the
    name, which no two sources of a release share, the object is the same wherever and however it is compiled
    (measured, byte for byte).
    """
    relative = os.path.relpath(os.path.abspath(source), source_root(source))
    return [hipcc, *flags, f"-cuid={kernel_name(source)}", "-x", "hip", "-c", relative, "-o", output]
