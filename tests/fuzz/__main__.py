"""Fuzz one reader: ``python -m fuzz TARGET --runs N --seed S --folder DIR``, in the folder of the tests.

The folder keeps the inputs that reached new code (``corpus``, which the next run reuses) and the input of a finding
(``crash-...``, ``timeout-...`` or ``oom-...``); the traceback of a finding is printed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["wheelfactory", "sigstore", "zipfile", "packaging", "email", "csv"]):
    from fuzz.targets import TARGETS

LONGEST_INPUT = 1 << 16
SECONDS, MEGABYTES = 10, 2048
"""Limits for one input. The readers must stay far below them for any input."""


def main() -> None:
    """Fuzz until `--runs` inputs were read or a finding occurs. libFuzzer ends the process."""
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
