"""`wheelfactory verify`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from wheelfactory.build.fallback import is_unknown_fallback
from wheelfactory.commands.executor_options import add_gate_executor, has_platform_wheel, open_executor
from wheelfactory.commands.options import (
    Environ,
    add_cache,
    add_extended,
    add_matrix,
    add_quick,
    prepare_cache,
    print_messages,
    print_results,
)
from wheelfactory.core.cell import FALLBACK_NAME, Cell
from wheelfactory.core.errors import DONE, VERIFICATION_FAILED, InputError
from wheelfactory.core.host import read_host
from wheelfactory.core.progress import log_to_stderr
from wheelfactory.matrix.load import load_matrix
from wheelfactory.release.additions import read_wheel_row
from wheelfactory.release.directory import DirectoryPublisher
from wheelfactory.release.verified import unverified_reason
from wheelfactory.verify.gates import is_refused, parse_extended
from wheelfactory.verify.gates import verify as run_gates
from wheelfactory.verify.result import GateResult


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.epilog = "example: wheelfactory verify wheelhouse --extended gpu"
    help_text = "wheel, or release directory (verifies every wheel in its manifest)"
    parser.add_argument("wheels", nargs="+", type=Path, metavar="WHEEL", help=help_text)
    parser.add_argument(
        "--cell", metavar="ID", help="cell id that the wheel must have (default: the id in its build record)"
    )
    add_quick(parser)
    add_extended(parser)
    add_gate_executor(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object per wheel")
    add_matrix(parser)
    add_cache(parser)


def execute(options: argparse.Namespace, environ: Environ) -> int:
    """Print the gate results of each wheel; exit code 3 if any wheel is refused."""
    matrix, host, cache = load_matrix(options.matrix), read_host(environ), prepare_cache(options, environ)
    cell = Cell.parse(options.cell) if options.cell else None
    extended = tuple(parse_extended(options.extended))
    any_refused = False
    paths = [wheel for given in options.wheels for wheel in _wheels(given)]
    with open_executor(
        options, compiled=has_platform_wheel(paths), matrix=matrix, host=host, environ=environ, cache=cache
    ) as executor:
        for path in paths:
            with log_to_stderr():
                results = run_gates(
                    path,
                    cell,
                    extended,
                    executor.find_gate_host,
                    quick=options.quick,
                    matrix=matrix,
                    host=host,
                    environ=environ,
                    cache=cache,
                )
            any_refused = any_refused or is_refused(results)
            _print_gates(path, results, as_json=options.json)
    return VERIFICATION_FAILED if any_refused else DONE


def _print_gates(path: Path, results: tuple[GateResult, ...], *, as_json: bool) -> None:
    if as_json:
        print_results(json.dumps({"file": path.name, "gates": [result.model_dump(mode="json") for result in results]}))
        return
    verdict = "refused" if is_refused(results) else unverified_reason(read_wheel_row(path, results)) or "verified"
    print_results(f"{path.name}: {verdict}")
    for result in results:
        print_results(f"  {result.status!s:<8} {result.gate}" + (f" ({result.detail})" if result.detail else ""))
        for finding in result.findings:
            print_results(f"           {finding}")


def _wheels(path: Path) -> list[Path]:
    """Return a wheel, or the flash-attn wheels of a release directory."""
    if not path.is_dir() or path.suffix == ".whl":
        return [path]
    publisher = DirectoryPublisher(path)
    rows = [row for row in publisher.rows() if row.cell or row.project == FALLBACK_NAME]
    unknown = [row for row in rows if is_unknown_fallback(row.project, row.version)]
    for row in unknown:
        print_messages(f"warning: skipping {row.filename}: this checkout can only verify its own version")
    if len(rows) == len(unknown):
        raise InputError(
            "no wheels", f"the manifest of {path} names none", "name wheel files or another release directory"
        )
    return [publisher.wheels_dir / row.filename for row in rows if row not in unknown]
