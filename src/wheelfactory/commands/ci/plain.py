"""`wheelfactory ci plain`."""

from __future__ import annotations

import argparse
import json

from wheelfactory.build.fallback import read_project
from wheelfactory.build.plain import PlainBuilds
from wheelfactory.commands.options import Environ, add_cache, add_matrix, cache_of, show
from wheelfactory.core.errors import DONE, VerificationError
from wheelfactory.core.progress import announcing
from wheelfactory.matrix.load import load_matrix
from wheelfactory.pipeline.jobs import cells_of_groups, outputs


def add(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--groups", metavar="JSON", help="make those for the cells of these groups, as `ci jobs` gives them"
    )
    what.add_argument("--sums", metavar="JSON", help="make none, and refuse others than these")
    add_matrix(parser)
    add_cache(parser)


def execute(options: argparse.Namespace, environ: Environ) -> int:
    """Make the plain builds of what is published, and print their digests as a line for ``$GITHUB_OUTPUT``.

    Jobs that hold a token run no build code, so they get these builds as an artifact. Any job can replace an artifact,
    and none the outputs of another job: with `--sums` the artifact is compared with these.
    """
    builds = PlainBuilds(cache_of(options, environ), environ)
    if options.sums is not None:
        if options.sums != _text(builds):
            which, hint = str(builds.folder), "run the workflow again; if it stays so, find out what replaced them"
            raise VerificationError("other plain builds than the job made", which, hint)
        return DONE
    matrix = load_matrix(options.matrix)
    with announcing():
        builds.of_fallback(read_project())
        for version in sorted({cell.flash_attn for cell in cells_of_groups(options.groups)}):
            builds.of_flash_attn(version, matrix.flash_attn[version])
    show(*outputs({"sums": _text(builds)}))
    return DONE


def _text(builds: PlainBuilds) -> str:
    return json.dumps(builds.digests(), sort_keys=True)
