"""`wheelfactory ci plain`."""

from __future__ import annotations

import argparse
import json

from wheelfactory.build.fallback import read_fallback_project
from wheelfactory.build.plain import PlainBuilds
from wheelfactory.commands.options import Environ, add_cache, add_matrix, prepare_cache, print_results
from wheelfactory.core.errors import DONE, VerificationError
from wheelfactory.core.progress import log_to_stderr
from wheelfactory.matrix.load import load_matrix
from wheelfactory.pipeline.jobs import output_lines, parse_group_cells


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
    builds = PlainBuilds(prepare_cache(options, environ), environ)
    if options.sums is not None:
        if options.sums != _text(builds):
            which, hint = str(builds.folder), "run the workflow again; if it stays so, find out what replaced them"
            raise VerificationError("other plain builds than the job made", which, hint)
        return DONE
    matrix = load_matrix(options.matrix)
    with log_to_stderr():
        builds.make_fallback_wheel(read_fallback_project())
        for version in sorted({cell.flash_attn for cell in parse_group_cells(options.groups)}):
            builds.make_flash_attn_wheel(version, matrix.flash_attn[version])
    print_results(*output_lines({"sums": _text(builds)}))
    return DONE


def _text(builds: PlainBuilds) -> str:
    return json.dumps(builds.read_digests(), sort_keys=True)
