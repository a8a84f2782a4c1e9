"""`wheelfactory verify`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from wheelfactory.build.fallback import is_of_other_sources
from wheelfactory.commands.executor_options import add_place, any_with_platform, executor_of
from wheelfactory.commands.options import Environ, add_cache, add_extended, add_matrix, add_quick, cache_of, show, tell
from wheelfactory.core.cell import FALLBACK_NAME, Cell
from wheelfactory.core.errors import DONE, VERIFICATION_REFUSED, InputError
from wheelfactory.core.host import read_host
from wheelfactory.core.progress import announcing
from wheelfactory.matrix.load import load_matrix
from wheelfactory.release.additions import wheel_row
from wheelfactory.release.directory import DirectoryPublisher
from wheelfactory.release.verified import unverified
from wheelfactory.verify.gates import named, refused
from wheelfactory.verify.gates import verify as run_gates
from wheelfactory.verify.result import GateResult


def add(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    help_text = "a wheel, or a release directory for all the wheels of its manifest"
    parser.add_argument("wheels", nargs="+", type=Path, metavar="WHEEL", help=help_text)
    parser.add_argument("--cell", metavar="ID", help="the cell it must be (default: the one in its build record)")
    add_quick(parser)
    add_extended(parser)
    add_place(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object a wheel")
    add_matrix(parser)
    add_cache(parser)


def execute(options: argparse.Namespace, environ: Environ) -> int:
    """Print what each gate says of each wheel; exit code 3 if any wheel is refused."""
    matrix, host, cache = load_matrix(options.matrix), read_host(environ), cache_of(options, environ)
    cell = Cell.parse(options.cell) if options.cell else None
    extended = tuple(named(options.extended))
    bad = False
    paths = [wheel for given in options.wheels for wheel in _wheels(given)]
    with executor_of(
        options, compiled=any_with_platform(paths), matrix=matrix, host=host, environ=environ, cache=cache
    ) as executor:
        for path in paths:
            with announcing():
                results = run_gates(
                    path,
                    cell,
                    extended,
                    executor.elsewhere,
                    quick=options.quick,
                    matrix=matrix,
                    host=host,
                    environ=environ,
                    cache=cache,
                )
            bad = bad or refused(results)
            _show(path, results, as_json=options.json)
    return VERIFICATION_REFUSED if bad else DONE


def _show(path: Path, results: tuple[GateResult, ...], *, as_json: bool) -> None:
    if as_json:
        show(json.dumps({"file": path.name, "gates": [result.model_dump(mode="json") for result in results]}))
        return
    show(f"{path.name}: {'refused' if refused(results) else unverified(wheel_row(path, results)) or 'verified'}")
    for result in results:
        show(f"  {result.status!s:<8} {result.gate}" + (f" ({result.detail})" if result.detail else ""))
        for finding in result.findings:
            show(f"           {finding}")


def _wheels(path: Path) -> list[Path]:
    """The wheel of that name, or those that were made here in a release directory."""
    if not path.is_dir() or path.suffix == ".whl":
        return [path]
    publisher = DirectoryPublisher(path)
    found = [row for row in publisher.rows() if row.cell or row.project == FALLBACK_NAME]
    others = [row for row in found if is_of_other_sources(row.project, row.version)]
    for row in others:
        tell(f"left out, this checkout cannot verify another version of it: {row.filename}")
    if len(found) == len(others):
        raise InputError("no wheels", f"the manifest of {path} names none", "name wheels, or a release directory")
    return [publisher.wheels / row.filename for row in found if row not in others]
