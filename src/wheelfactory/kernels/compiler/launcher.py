"""The program in front of hipcc (``PYTORCH_NVCC``): ``python -ISB launcher.py HIPCC ARGUMENTS...``

It replaces itself with the compiler. A generated kernel is compiled in its `source_root` with only the flags that
affect it; any other command line is unchanged. Our ninja compiles kernels without it (see `commands`).
"""

from __future__ import annotations

import os
import sys

# last, so that packages installed beside ours cannot shadow modules of this Python
sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))))

from wheelfactory.kernels.compiler import flags

LAUNCHER_PATH = os.path.realpath(__file__)
"""The path of this program on a command line."""


def compile_command(
    argv: list[str], source: str, environ: dict[str, str], *, disable_early_inline: bool
) -> tuple[list[str], dict[str, str]]:
    """The command that compiles a kernel in its `source_root`, and the environment to run it in."""
    hipcc, arguments = argv[0], argv[1:]
    root, rocm = flags.source_root(source), flags.rocm_root(hipcc)
    kept_flags = [
        *flags.kernel_flags(arguments, root, rocm, disable_early_inline=disable_early_inline),
        *flags.appended_flags(environ),
    ]
    output = os.path.abspath(arguments[arguments.index("-o") + 1])
    remaining = {name: value for name, value in environ.items() if name != flags.APPEND_VARIABLE}
    return flags.kernel_command(hipcc, kept_flags, source, output), remaining


def _has_blowup(argv: list[str], environ: dict[str, str]) -> bool:
    """Whether this command line has the pair of flags, and the compiler blows up on it."""
    if not flags.has_runaway_flags(argv):
        return False
    from wheelfactory.kernels.compiler.compiler import read_compiler  # takes a second, so only if the flags are there

    return read_compiler(argv[0], environ).has_runaway_inlining


def main(argv: list[str]) -> int:
    """Replace this process with the compiler; return an exit status if it cannot be started."""
    environ = dict(os.environ)
    source = flags.find_kernel_source(argv[1:])
    command = argv
    if source is not None:
        command, environ = compile_command(argv, source, environ, disable_early_inline=_has_blowup(argv, environ))
        os.chdir(flags.source_root(source))
    try:
        os.execvpe(command[0], command, environ)
    except OSError as error:
        print(f"error: cannot start the compiler: {command[0]}: {error.strerror}", file=sys.stderr)
        return 127


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
