"""Fuzz one reader: ``python -m fuzz TARGET --runs N --seed S --folder DIR``, in the folder of the tests.

The folder gets the inputs that reached something new (``corpus``, read again by the next run) and, if there is one,
the input that was a finding (``crash-...``, ``timeout-...`` or ``oom-...``), whose traceback is printed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["wheelfactory", "zipfile", "packaging", "email", "csv"]):
    from fuzz.targets import TARGETS

LONGEST_INPUT = 1 << 16
SECONDS, MEGABYTES = 10, 2048
"""What one input may take; the readers are to be bounded far below that, whatever they are given."""


def main() -> None:
    """Fuzz until so many inputs were read, or one of them is a finding. libFuzzer ends the process."""
    parser = argparse.ArgumentParser(prog="python -m fuzz")
    parser.add_argument("target", choices=sorted(TARGETS))
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="fuzz-"))
    corpus, work = folder / "corpus", folder / "work"
    for path in (corpus, work):
        path.mkdir(parents=True, exist_ok=True)
    target = TARGETS[options.target](work)
    for number, seed in enumerate(target.seeds()):
        (corpus / f"seed-{number}").write_bytes(seed)
    (folder / "words").write_text("".join(f'"{_escaped(word)}"\n' for word in target.words))
    arguments = [
        *(sys.argv[0], str(corpus), f"-runs={options.runs}", f"-seed={options.seed}", f"-max_len={LONGEST_INPUT}"),
        *(f"-timeout={SECONDS}", f"-rss_limit_mb={MEGABYTES}", f"-dict={folder / 'words'}"),
        *(f"-artifact_prefix={folder}/", "-print_final_stats=1", "-len_control=0"),
    ]
    atheris.Setup(arguments, target.read, custom_mutator=target.mutate)
    atheris.Fuzz()


def _escaped(word: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in word)


if __name__ == "__main__":
    main()
