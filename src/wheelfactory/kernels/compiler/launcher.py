"""The program in front of hipcc (``PYTORCH_NVCC``): ``python -ISB launcher.py HIPCC ARGUMENTS...``

It becomes the compiler: for a generated kernel with the flags that can reach it, from its `source_root`; for anything
else with the command line as it is. Our ninja starts kernels by `compile_command`, without it.
"""

from __future__ import annotations

import os
import sys

# last, as what is installed beside the package must stand in front of nothing
sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))))

from wheelfactory.kernels.compiler import flags

LAUNCHER_PATH = os.path.realpath(__file__)
"""Of this program, as it stands on a command line."""


def compile_command(
    argv: list[str], source: str, environ: dict[str, str], *, disable_early_inline: bool
) -> tuple[list[str], dict[str, str]]:
    """The command that compiles a kernel in its `source_root`, and its environment.

    `tame` takes back early inlining.
    """
    hipcc, arguments = argv[0], argv[1:]
    root, rocm = flags.source_root(source), flags.rocm_root(hipcc)
    kept = [
        *flags.kernel_flags(arguments, root, rocm, disable_early_inline=disable_early_inline),
        *flags.appended_flags(environ),
    ]
    output = os.path.abspath(arguments[arguments.index("-o") + 1])
    left = {name: value for name, value in environ.items() if name != flags.APPEND_VARIABLE}
    return flags.kernel_command(hipcc, kept, source, output), left


def _runs_away(argv: list[str], environ: dict[str, str]) -> bool:
    """Whether the compiler runs away on the pair of flags, and this command line has it."""
    if not flags.has_runaway_flags(argv):
        return False
    from wheelfactory.kernels.compiler.compiler import read_compiler  # takes a second, so only where it matters

    return read_compiler(argv[0], environ).has_runaway_inlining


def main(argv: list[str]) -> int:
    """Become the compiler; the exit status if there is none."""
    environ = dict(os.environ)
    source = flags.find_kernel_source(argv[1:])
    command = argv
    if source is not None:
        command, environ = compile_command(argv, source, environ, disable_early_inline=_runs_away(argv, environ))
        os.chdir(flags.source_root(source))
    try:
        os.execvpe(command[0], command, environ)
    except OSError as error:
        print(f"error: cannot run: {command[0]}: {error.strerror}", file=sys.stderr)
        return 127


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
