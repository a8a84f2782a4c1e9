"""Fuzz readers: ``python -m fuzz TARGET... --runs N --seed S --folder DIR``, in the folder of the tests.

A target can have its own number of runs: ``elf:2000``. DIR has a folder for each. It keeps the inputs that reached new
code (``corpus``, which the next run reuses), what the fuzzer printed (``log``), and the input of a finding
(``crash-...``, ``timeout-...`` or ``oom-...``); the log ends with the traceback of a finding.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["wheelfactory", "sigstore", "zipfile", "packaging", "email", "csv"]):
    from fuzz.targets import TARGETS

LONGEST_INPUT = 1 << 16
SECONDS, MEGABYTES = 10, 2048
"""Limits for one input. The readers must stay far below them for any input."""


def main() -> int:
    """Fuzz one target after the other, each in a process of its own, which libFuzzer ends; return 1 after a finding."""
    parser = argparse.ArgumentParser(prog="python -m fuzz")
    parser.add_argument("targets", nargs="+", metavar="TARGET", help=", ".join(sorted(TARGETS)))
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="fuzz-"))
    found = 0
    for name, _, runs in (text.partition(":") for text in options.targets):
        # a fork has all modules, whose instrumented import takes seconds
        child = os.fork()
        if not child:
            _fuzz(name, int(runs or options.runs), options.seed, folder / name)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{name}: {'a finding' if status else 'nothing found'}, see {folder / name / 'log'}\n")
        found |= bool(status)
    return int(found)


def _fuzz(name: str, runs: int, seed: int, folder: Path) -> None:
    """Fuzz until `runs` inputs were read or a finding occurs. libFuzzer ends the process."""
    corpus, work = folder / "corpus", folder / "work"
    for path in (corpus, work):
        path.mkdir(parents=True, exist_ok=True)
    with (folder / "log").open("wb") as log:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(log.fileno(), stream.fileno())
    target = TARGETS[name](work)
    for number, start in enumerate(target.seeds()):
        (corpus / f"seed-{number}").write_bytes(start)
    (folder / "words").write_text("".join(f'"{_escaped(word)}"\n' for word in target.words))
    arguments = [
        *(sys.argv[0], str(corpus), f"-runs={runs}", f"-seed={seed}", f"-max_len={LONGEST_INPUT}"),
        *(f"-timeout={SECONDS}", f"-rss_limit_mb={MEGABYTES}", f"-dict={folder / 'words'}"),
        *(f"-artifact_prefix={folder}/", "-print_final_stats=1", "-len_control=0"),
    ]
    atheris.Setup(arguments, target.read, custom_mutator=target.mutate)
    atheris.Fuzz()


def _escaped(word: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in word)


if __name__ == "__main__":
    sys.exit(main())
