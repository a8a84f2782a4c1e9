"""Runs the commands of a page as a reader does who has a checkout: one bash, from the first block to the last.

The script has the lines of the page at their places, so that whatever bash says names the line of the page.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from docs.pages import Block, Page, repository_files
from wheelfactory.core.files import ROOT

TIME_LIMIT_S = 180
"""For a page. The slowest takes a tenth of it on two cores."""

_SESSION = Path(__file__).with_name("session.sh")
_END = "END_OF_BLOCK"
_PROMPT = "$ "


@dataclass(frozen=True)
class Done:
    """What came of the commands of a page."""

    code: int
    output: str
    """Stdout and stderr as they came, with the place of what failed."""


def make_checkout(folder: Path) -> None:
    """A copy of the repository in `folder`, as ``./factory`` left it: with an environment, and nothing else ignored.

    The environment has the packages of the one that runs this, which takes no time, and the factory of the copy.
    """
    folder.mkdir(parents=True)
    files = [name for name in repository_files() if (ROOT / name).is_file()]
    compiled = [str(path.relative_to(ROOT)) for path in ROOT.glob("src/**/*.pyc")]  # else each page compiles them again
    command = ("xargs", "--null", "cp", "--parents", "--preserve=timestamps,mode", "--target-directory", str(folder))
    subprocess.run(command, cwd=ROOT, input="\0".join([*files, *compiled]), text=True, check=True)
    own, packages = Path(sys.prefix), Path("lib", f"python{sys.version_info[0]}.{sys.version_info[1]}", "site-packages")
    venv = folder / ".venv"
    (venv / packages).mkdir(parents=True)
    path = f"{folder}/src\n{folder}/packages/remote_execution/src\n"
    (venv / packages / "factory.pth").write_text(f"{path}{own / packages}\n")
    (venv / "bin").symlink_to(own / "bin")
    shutil.copy(own / "pyvenv.cfg", venv)
    for lock in ("factory", "dev", "docs"):
        (venv / f"installed-{lock}").write_text(path)


def run_page(page: Page, checkout: Path, home: Path, environ: Mapping[str, str]) -> Done:
    """Run all blocks of a page in a checkout. What it started is ended, also in the background."""
    outputs = home / "outputs"
    outputs.mkdir(parents=True)
    commands = home / "page.sh"
    commands.write_text(script(page, outputs))
    own = {**environ, "HOME": str(home), "PAGE": page.path, "GIT_CEILING_DIRECTORIES": str(checkout.parent)}
    log = home / "log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            ["bash", commands],
            cwd=checkout,
            env=own,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(TIME_LIMIT_S)
        except subprocess.TimeoutExpired:
            file.write(f"{page.path}: not done after {TIME_LIMIT_S} s\n".encode())
            code = -signal.SIGKILL
        finally:
            _end(process)
    output = log.read_text(errors="replace")
    untrue = "" if code else "\n".join(_not_shown(page, outputs))
    return Done(code or bool(untrue), output + untrue)


def script(page: Page, outputs: Path) -> str:
    """The commands of a page, each at its line; what a ``console`` block prints is kept in `outputs`."""
    lines = [""] * len(page.text.splitlines())
    lines[0] = f"source {shlex.quote(str(_SESSION))}"
    for block in page.blocks:
        body = block.text.splitlines()
        wrapped = _wrapped(block, body, outputs)
        if wrapped:
            lines[block.line - 1 : block.line + len(body) + 1] = wrapped
    return "\n".join([*lines, ""])


def _wrapped(block: Block, body: Sequence[str], outputs: Path) -> list[str]:
    """What stands for the lines of a block and its two fences; empty if it is not run."""
    for kind, start in (("file", "cat >"), ("insert into", "insert_into")):
        name = block.mark(kind)
        if name:
            return [f"{start} {shlex.quote(name)} <<'{_END}'", *body, _END]
    if not block.is_executed:
        return []
    code = block.mark("exit code") or "0"
    if block.language == "console":
        body, kept = [*_commands(body)], f" 2>&1 | tee {shlex.quote(str(outputs / str(block.line)))}"
    elif code == "0":
        return [":", *body, ":"]
    else:
        kept = ""
    return ["lenient; ( strict", *body, f'){kept}; ends_with "${{PIPESTATUS[0]}}" {block.line} {code}; strict']


def _commands(body: Sequence[str]) -> Iterator[str]:
    """The lines of a console that were typed; those that were printed are empty."""
    continued = False
    for line in body:
        typed = continued or line.startswith(_PROMPT)
        yield line.removeprefix(_PROMPT) if typed else ""
        continued = typed and line.endswith("\\")


def _not_shown(page: Page, outputs: Path) -> Iterator[str]:
    """What a page shows as output and what was not printed."""
    for block in page.blocks:
        if block.language == "console" and block.is_executed:
            body = block.text.splitlines()
            shown = [line for line, typed in zip(body, _commands(body), strict=True) if not typed and line.strip()]
            printed = iter((outputs / str(block.line)).read_text(errors="replace").splitlines())
            for line in shown:
                pattern = ".*".join(map(re.escape, line.strip().split("...")))
                if not any(re.fullmatch(pattern, text.strip()) for text in printed):
                    yield f"{block.place}: shows what is not printed there: {line}"
                    break


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:  # all of it has ended
        return
    process.wait()
