"""`wheelfactory ci baseline`."""

from __future__ import annotations

import argparse
import json

from wheelfactory.build.fallback import read_fallback_project
from wheelfactory.build.plain import PlainBuilds
from wheelfactory.commands.options import Environ, add_cache, add_matrix, prepare_cache, print_results
from wheelfactory.core.cell import AITER_NAME
from wheelfactory.core.errors import DONE, VerificationError
from wheelfactory.core.progress import log_to_stderr
from wheelfactory.matrix.load import load_matrix
from wheelfactory.pipeline.jobs import output_lines, parse_batch_cells


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument(
        "--batches",
        metavar="JSON",
        help="build the reference wheels for the cells of these batches (output `batches` of `ci jobs`)",
    )
    action.add_argument(
        "--digests", metavar="JSON", help="check the reference wheels in the cache against these digests; build nothing"
    )
    add_matrix(parser)
    add_cache(parser)


def execute(options: argparse.Namespace, environ: Environ) -> int:
    """Build the reference wheels and print their digests as a line for ``$GITHUB_OUTPUT``, or check such digests.

    Raises `VerificationError` if the reference wheels in the cache have different digests.
    """
    # Jobs with a token run no build code, so they download these builds as an artifact. Any job can replace an
    # artifact, but no job can change the outputs of another: hence the digests travel as an output.
    builds = PlainBuilds(prepare_cache(options, environ), environ)
    if options.digests is not None:
        if options.digests != _digests_json(builds):
            which, hint = (
                str(builds.folder),
                "rerun the workflow; if this repeats, find the job that replaced the artifact",
            )
            raise VerificationError("reference wheels differ from those that their job built", which, hint)
        return DONE
    matrix = load_matrix(options.matrix)
    with log_to_stderr():
        builds.make_fallback_wheel(read_fallback_project())
        cells = parse_batch_cells(options.batches)
        if any(cell.uses_aiter for cell in cells):
            builds.make_aiter_wheel(matrix.dependencies[AITER_NAME])
        for version in sorted({cell.flash_attn for cell in cells}):
            builds.make_flash_attn_wheel(version, matrix.flash_attn[version])
    print_results(*output_lines({"digests": _digests_json(builds)}))
    return DONE


def _digests_json(builds: PlainBuilds) -> str:
    return json.dumps(builds.read_digests(), sort_keys=True)
