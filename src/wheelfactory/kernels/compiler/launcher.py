"""The program in front of hipcc (``PYTORCH_NVCC``): ``python -ISB launcher.py HIPCC ARGUMENTS...``

A generated kernel is compiled with the flags that can reach it, from its `source_root`, through ccache. Anything else
is handed to hipcc as it is. Where a coordinator is at work (see `coordinator`), each compile asks it before it starts
and tells it what it cost. Started once an object, so it imports little.
"""

from __future__ import annotations

import os
import sys
import time

# last, as what is installed beside the package must stand in front of nothing
sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))))

from wheelfactory.kernels.compiler import flags

SOCKET, TAME, CCACHE, STATS = (
    f"WHEELFACTORY_{name}" for name in ("COMPILE_SOCKET", "TAME_INLINING", "CCACHE", "CACHE_STATS")
)
"""How the `ninja` beside this tells its launchers what it knows: the coordinator's socket, whether early inlining is to
be taken back (``1``; it is on kernels' command lines and the compiler runs away on it), the cache to use, and where the
cache says whether it hit."""

STOPPED = 75
"""Exit status of a compile that was not started because the time is up (EX_TEMPFAIL of sysexits)."""

_HITS = ("direct_cache_hit", "preprocessed_cache_hit")


class Conversation:
    """With the coordinator; without one every compile starts at once and nobody is told."""

    def __init__(self, path: str) -> None:
        self.connection = None
        if path:
            import _socket  # what is in front of it in socket takes longer to import than all else here

            self.connection = _socket.socket(_socket.AF_UNIX)
            self.connection.connect(path)

    def ask(self, *words: object) -> str:
        """Send a line and give the answer; empty if the coordinator is gone."""
        if self.connection is None:
            return "go"
        try:
            self.connection.sendall(("\t".join(map(str, words)) + "\n").encode())
            return self.connection.recv(1000).decode().strip()
        except OSError:
            return ""

    def wait(self, alive: int) -> None:
        """Wait until nobody holds the other end of the pipe `alive`: the compiler and all below it have ended.

        If the coordinator ends first, they are ended, and this process with them: ninja gave each compile a group.
        """
        if self.connection is None:
            return
        import select

        readable, _, _ = select.select([alive, self.connection.fileno()], [], [])
        if alive not in readable:
            import signal

            os.killpg(0, signal.SIGKILL)


def compile_command(argv: list[str], source: str, environ: dict[str, str]) -> tuple[list[str], dict[str, str]]:
    """The command that compiles a kernel, and its environment."""
    hipcc, arguments = argv[0], argv[1:]
    root = flags.source_root(source)
    tame = flags.is_runaway(arguments) and _runs_away(hipcc, environ)
    told = [*flags.kernel_flags(arguments, root, flags.rocm_of(hipcc), tame=tame), *flags.appended_flags(environ)]
    output = arguments[arguments.index("-o") + 1]
    cache = [environ[CCACHE]] if environ.get(CCACHE) else []
    left = {name: value for name, value in environ.items() if name != flags.APPENDED}
    return [*cache, *flags.kernel_command(hipcc, told, source, os.path.abspath(output))], left


def _runs_away(hipcc: str, environ: dict[str, str]) -> bool:
    """Whether the compiler runs away on the pair of flags, which this command line has; as `TAME` says if it is set."""
    if TAME in environ:
        return environ[TAME] == "1"
    from wheelfactory.kernels.compiler.compiler import (
        read_compiler,  # takes a second, so only where nobody did it before
    )

    return read_compiler(hipcc, environ).runs_away


def _run(
    command: list[str], folder: str, environ: dict[str, str], coordinator: Conversation
) -> tuple[int, float, int, float]:
    """Run a command in a folder; its exit status, CPU seconds, memory of its largest process in KiB, and start."""
    start = time.time()
    alive, held = os.pipe()  # os.pidfd_open is not in every Python that images have
    process = os.fork()
    if process == 0:
        try:
            os.set_inheritable(held, True)
            os.chdir(folder)
            os.execvpe(command[0], command, environ)
        except OSError as error:
            print(f"error: cannot run: {command[0]}: {error.strerror}", file=sys.stderr)
        os._exit(127)
    os.close(held)
    coordinator.wait(alive)
    os.close(alive)
    _, status, used = os.wait4(process, 0)
    code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    return code, used.ru_utime + used.ru_stime, used.ru_maxrss, start


def _was_cached(stats: str) -> bool:
    """Whether ccache says of this compile that it had the object."""
    try:
        with open(stats) as file:
            said = file.read()
        os.unlink(stats)
    except OSError:
        return False
    return any(hit in said for hit in _HITS)


def main(argv: list[str]) -> int:
    """Compile; gives the compiler's exit status."""
    environ = dict(os.environ)
    source = flags.kernel_source(argv[1:])
    command, folder, name, output = argv, ".", "", ""
    stats = ""
    if source is not None:
        command, environ = compile_command(argv, source, environ)
        folder, name, output = flags.source_root(source), flags.kernel_name(source), command[-1]
        if environ.get(STATS):
            stats = environ["CCACHE_STATSLOG"] = os.path.join(environ[STATS], name)
    coordinator = Conversation(environ.get(SOCKET, ""))
    answer = "again"
    while answer == "again":
        answer = coordinator.ask("start", name)
        if answer != "go":
            print(f"not started: {name}: {answer or 'the build has ended'}", file=sys.stderr)
            return STOPPED
        code, cpu, memory, start = _run(command, folder, environ, coordinator)
        cached = bool(stats) and _was_cached(stats)
        answer = coordinator.ask("end", code, f"{cpu:.3f}", memory, f"{start:.3f}", int(cached), output)
    if code == 0 and answer not in ("go", "kept"):
        print(f"error: not kept: {name}: {answer or 'the build has ended'}", file=sys.stderr)
        return 1
    return 128 - code if code < 0 else code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
