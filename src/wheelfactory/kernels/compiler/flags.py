"""Reduce upstream's hipcc command line to the flags that affect a kernel, so that cells can share the kernel."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence

# hipcc appends this variable to its command line, where no compiler cache sees it (measured: both ccache and sccache
# then return wrong objects). Ours has the flags on the command line instead
APPEND_VARIABLE = "HIPCC_COMPILE_FLAGS_APPEND"

COMPILER_ENVIRONMENT = (
    *("HIP_PATH", "HIP_CLANG_PATH", "HIP_DEVICE_LIB_PATH", "DEVICE_LIB_PATH", "HIP_PLATFORM", "HIP_COMPILER"),
    *("HIP_RUNTIME", "HIP_ROCCLR_HOME", "HIP_COMPILE_CXX_AS_HIP", "HIP_CLANG_HCC_COMPAT_MODE", "HIP_USE_PERL_SCRIPTS"),
    *("HCC_AMDGPU_TARGET", "ROCM_PATH", "CCC_OVERRIDE_OPTIONS", "CLANG_NO_DEFAULT_CONFIG"),
    *("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH"),
)
"""Variables that change the object of the same command line (sources: hipcc's code, clang's manual)."""

HEADER_OPTIONS = ("-I", "-isystem", "-iquote", "-idirafter")
OUTPUT_OPTIONS = ("-o", "-MF", "-MT", "-MQ")
"""Options that name output files."""
_WITH_VALUE = (
    *HEADER_OPTIONS,
    *OUTPUT_OPTIONS,
    *("-D", "-U", "-x", "-mllvm", "-Xclang", "-Xarch_device", "-Xarch_host", "-include"),
)

TORCH_ONLY = ("TORCH_", "PYBIND11_", "HIP_ENABLE_WARP_SYNC_BUILTINS", "HIPIFY_V2")
"""Prefixes of macros that depend on torch, and that no kernel reads: the extension's name, pybind11's ABI, a switch for
`__*_sync` intrinsics, which CK does not use, and which hipify translated the bindings (setup.py since 2.8.4)."""

EARLY_INLINE = "-amdgpu-early-inline-all"
FUNCTION_CALLS = "-amdgpu-function-calls"


def is_kernel_source(word: str) -> bool:
    """Whether a word of a command line is the path of a generated kernel."""
    # in every release, upstream's setup.py takes ``build/fmha_*wd*`` for generated sources
    folder, name = os.path.split(word)
    is_source = name.endswith((".hip", ".cu", ".cpp")) and not word.startswith("-")
    return is_source and name.startswith("fmha_") and os.path.basename(folder) == "build"


def kernel_name(source: str) -> str:
    """The file name of a source without extension."""
    return os.path.splitext(os.path.basename(source))[0]


def source_root(source: str) -> str:
    """The folder with setup.py; a generated source is in its subfolder ``build``."""
    return os.path.dirname(os.path.dirname(os.path.abspath(source)))


def rocm_root(hipcc: str) -> str:
    """The ROCm folder that a hipcc belongs to."""
    return os.path.dirname(os.path.dirname(os.path.abspath(hipcc)))


def has_runaway_flags(arguments: Sequence[str]) -> bool:
    """Whether a command line has the two flags that make some compilers inline without end (see `compiler`)."""
    return f"{EARLY_INLINE}=true" in arguments and f"{FUNCTION_CALLS}=false" in arguments


def kernel_flags(arguments: Sequence[str], root: str, rocm: str, *, disable_early_inline: bool) -> list[str]:
    """Return the flags that affect a generated kernel, in order, without source and output.

    `arguments` exclude the compiler. Paths below `root` become relative.
    """
    # relative paths give the same flags for the same sources in another folder
    # Header folders of torch and Python are dropped: they differ in every cell, and no kernel includes one (`key`
    # verifies that).
    kept: list[str] = []
    for option, value in split_options(arguments):
        if option in OUTPUT_OPTIONS or (not option and is_kernel_source(value)):
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
            kept += [option, value] if option else [value]  # a lone value belongs to an unknown option before it
        elif option not in ("-c", "-MD", "-MMD"):
            kept.append(option)
    return kept


def split_options(arguments: Sequence[str]) -> Iterable[tuple[str, str]]:
    """Split arguments into (option, value), written as one word or two; option is empty for other words."""
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
    # torch set the ABI macro until 2.7; 1 is the default of the standard library, so it changes nothing
    return macro.startswith(TORCH_ONLY) or macro == "_GLIBCXX_USE_CXX11_ABI=1"


def _header_folder(folder: str, root: str, rocm: str) -> str:
    """The header folder as the kernel's command names it; empty if no kernel needs it."""
    path = os.path.abspath(os.path.join(root, folder))
    if path == root or path.startswith(root + os.sep):
        return os.path.relpath(path, root)
    return path if path.startswith(rocm + os.sep) else ""


def appended_flags(environ: Mapping[str, str]) -> list[str]:
    """The flags that hipcc would append from the environment."""
    return shlex.split(environ.get(APPEND_VARIABLE, ""))


def kernel_command(hipcc: str, flags: Sequence[str], source: str, output: str) -> list[str]:
    """The command that compiles a kernel; run it in the kernel's `source_root`."""
    # Without -cuid, clang hashes the command line and the source path into a symbol. With the source's name, which is
    # unique in a release, the object is the same in every folder (measured, byte for byte).
    relative = os.path.relpath(os.path.abspath(source), source_root(source))
    return [hipcc, *flags, f"-cuid={kernel_name(source)}", "-x", "hip", "-c", relative, "-o", output]
