"""Write what follows from matrix.yaml; first bring matrix.yaml itself up to date with --online.

    ./factory refresh             after an edit: the reviewed lists, README's table
    ./factory refresh --online    also new torch releases, image tags and digests, and what needs an entry by a person

See docs/how-to/refresh.md.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from refresh.derived import note_additions, write_derived
from refresh.edit import Findings, run_chore
from refresh.images import refresh_images
from refresh.news import find_news
from refresh.registry import DOCKER_HUB, Registry
from refresh.torch_index import PYTORCH, TorchIndex
from refresh.torch_releases import refresh_torch
from wheelfactory.commands.options import add_shared, print_messages, print_results
from wheelfactory.core.errors import DONE, FAILED, FactoryError, InputError
from wheelfactory.matrix.load import load_matrix

ROOT = Path(__file__).resolve().parents[1]
"""The checkout, to whose matrix.yaml the other files belong."""


def ask_sources(options: argparse.Namespace) -> Iterator[str]:
    """Update the matrix from each source and yield the report; a source that fails does not stop the others.

    Raises `InputError` for an invalid matrix.
    """
    path, index = options.matrix, TorchIndex(options.index, os.environ)
    sources: tuple[Callable[[], Findings], ...] = (
        lambda: refresh_torch(path, index),
        lambda: refresh_images(path, Registry(options.registry)),
        lambda: find_news(load_matrix(path), index, os.environ),
    )
    for ask in sources:
        try:
            findings = ask()
        except InputError:
            raise
        except FactoryError as error:
            yield f"failed     {error}; {error.hint}"
        else:
            yield from findings.lines
            print_messages(findings.summary)


def refresh(options: argparse.Namespace) -> int:
    """Print and write the report; `FAILED` if a source failed and no report says so. Raises `FactoryError`."""
    lines = list(ask_sources(options)) if options.online else []
    if options.matrix.resolve() == ROOT / "matrix.yaml":
        note_additions(ROOT, lines)
        lines += write_derived(ROOT, load_matrix(options.matrix))
    print_results(*lines)
    if options.report:
        open_ends = [line for line in lines if line.startswith(("failed", "suggested"))]
        options.report.write_text("".join(f"{line}\n" for line in open_ends), encoding="utf-8")
        return DONE
    return FAILED if any(line.startswith("failed") for line in lines) else DONE


def main() -> int:
    parser = argparse.ArgumentParser(prog="./factory refresh", description=(__doc__ or "").partition("\n")[0])
    add_shared(parser, "--matrix FILE")
    parser.add_argument("--online", action="store_true", help="first update matrix.yaml from indexes and Docker Hub")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write what failed or needs a person to a file")
    parser.add_argument("--index", default=PYTORCH, metavar="URL", help=f"index of torch (default: {PYTORCH})")
    parser.add_argument(
        "--registry", default=DOCKER_HUB, metavar="URL", help=f"registry of images (default: {DOCKER_HUB})"
    )
    options = parser.parse_args()
    return run_chore(lambda: refresh(options))


if __name__ == "__main__":
    raise SystemExit(main())
