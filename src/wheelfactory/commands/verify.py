"""`wheelfactory verify`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from wheelfactory.build.executor import Executor, LocalExecutor
from wheelfactory.build.products import is_other_version
from wheelfactory.commands.executor_options import (
    add_gate_executor,
    has_platform_wheel,
    open_executor,
    read_archives,
    use_store,
)
from wheelfactory.commands.options import (
    add_option,
    add_shared,
    prepare_cache,
    print_messages,
    print_results,
    print_text,
    read_context,
    require_cell,
)
from wheelfactory.commands.targets import open_site
from wheelfactory.core.cell import PRODUCTS, Cell
from wheelfactory.core.errors import DONE, VERIFICATION_FAILED, InputError
from wheelfactory.core.files import scratch_dir
from wheelfactory.core.progress import Steps, log_to_stderr
from wheelfactory.core.query import Interpreter
from wheelfactory.gpu.torch_python import find_user_python
from wheelfactory.kernels.setup_env import CompileScope
from wheelfactory.matrix.expand import expand
from wheelfactory.matrix.facts import Context
from wheelfactory.pipeline.build import check_rebuild
from wheelfactory.release.additions import read_wheel_row
from wheelfactory.release.directory import DirectoryPublisher
from wheelfactory.release.published_checks import check_installed, check_wheel, describe_checks
from wheelfactory.release.published_site import PublishedSite
from wheelfactory.release.verified import unverified_reason
from wheelfactory.verify.gates import is_refused, parse_extended, ran_code
from wheelfactory.verify.gates import verify as run_gates
from wheelfactory.verify.result import Finding, GateResult, result_lines
from wheelfactory.wheel.read import Wheel, read_build_record


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.epilog = (
        "example: wheelfactory verify wheelhouse --extended gpu\n"
        "example: wheelfactory verify --from github:OWNER/REPO flash-attn"
    )
    what = "wheel, or release directory (verifies all its wheels); with --from also the name of an installed project"
    parser.add_argument("wheels", nargs="+", type=Path, metavar="WHEEL", help=what)
    what = "run no gates, but compare with what a site published: its URL, a release directory or github:OWNER/REPO"
    add_option(parser, "--from SITE", what, dest="site")
    add_option(parser, "--cell ID", "cell id that the wheel must have (default: the id in its build record)")
    add_shared(parser, "--quick", "--extended LIST")
    what = "also build the wheel again on this machine (compiles what --kernels and cache lack), and compare all bytes"
    add_option(parser, "--rebuild", what)
    what = "compare device code with the kernel archives in DIR, and link these for --rebuild"
    add_option(parser, "--kernels DIR", what)
    add_gate_executor(parser)
    add_option(parser, "--json", "print one JSON object per wheel")
    add_shared(parser, "--matrix FILE", "--cache DIR")


def execute(options: argparse.Namespace) -> int:
    """Print the gate results, or with --from the checks, of each wheel; exit code 3 if any wheel is refused."""
    if options.site:
        return _compare_with_site(options)
    context = read_context(options)
    cell = Cell.parse(options.cell) if options.cell else None
    extended = tuple(parse_extended(options.extended))
    any_refused = any_ran = False
    scope = CompileScope(archives=read_archives(options))
    paths = [wheel for given in options.wheels for wheel in _wheels(given, context)]
    compiled = has_platform_wheel(paths)
    gates = partial(run_gates, quick=options.quick, archives=scope.archives, context=context)
    with (
        use_store(context.cache, compiled=compiled and options.rebuild),
        open_executor(options, compiled=compiled, context=context) as executor,
    ):
        for path in paths:
            with log_to_stderr():
                known = path in options.wheels or path.exists()
                results = gates(path, cell, extended, executor) if known else (_deleted(path),)
            if options.rebuild and not is_refused(results):
                results = (*results, *_rebuild(path, cell, executor, scope, context))
            any_refused = any_refused or is_refused(results)
            any_ran = any_ran or ran_code(results)
            verdict = "" if is_refused(results) else unverified_reason(read_wheel_row(path, results)) or "verified"
            _print_results(path.name, results, verdict, as_json=options.json)
        if any_ran and isinstance(executor, LocalExecutor):
            print_messages("code of the wheels ran with your rights; with --executor docker it runs in a container")
    return VERIFICATION_FAILED if any_refused else DONE


def _deleted(path: Path) -> GateResult:
    remedy = "restore it, or withdraw it: `wheelfactory publish DIR --yank NAME --reason WHY`"
    return GateResult.from_findings("archive", [Finding(path.name, "a published wheel", "no such file", remedy)])


def _rebuild(
    path: Path, cell: Cell | None, executor: Executor, scope: CompileScope, context: Context
) -> Iterator[GateResult]:
    """Build the wheel of a cell again, and yield the result. A product has no compiled code: `contents` compares it."""
    record = read_build_record(Wheel.open(path))
    if cell is None and record:
        cell = require_cell(expand(context.matrix), record.cell)
    if cell:
        with Steps(1) as steps, steps.step(cell.id) as report_progress:
            yield check_rebuild(path, cell, executor, report_progress, context=context, scope=scope)


def _compare_with_site(options: argparse.Namespace) -> int:
    """Check wheels and installed projects against what a site published."""
    if options.cell or options.quick or options.extended or options.rebuild or options.kernels:
        hint = "omit --cell, --quick, --extended, --rebuild and --kernels"
        raise InputError("--from runs no gates", options.site, hint)
    cache = prepare_cache(options)
    site, any_refused = open_site(options.site, options.environ), False
    for given in options.wheels:
        with scratch_dir(cache) as scratch:
            name, results = _compare(given, site, scratch)
        any_refused = any_refused or is_refused(results)
        _print_results(name, results, describe_checks(results), as_json=options.json)
    return VERIFICATION_FAILED if any_refused else DONE


def _compare(given: Path, site: PublishedSite, scratch: Path) -> tuple[str, tuple[GateResult, ...]]:
    """Check a wheel file, or the project of this name that the user's Python has installed."""
    if given.suffix == ".whl":
        return given.name, check_wheel(given, site)
    hint = "name a wheel file, or a project that is installed"
    if len(given.parts) != 1:
        raise InputError("neither a wheel nor an installed project", str(given), hint)
    python = find_user_python(site.environ)
    installed = next(Interpreter([python], site.environ).find_packages().distributions(given.name), None)
    if installed is None:
        raise InputError("neither a wheel nor an installed project", f"{given.name} in {python}", hint)
    return check_installed(installed, site, scratch)


def _print_results(name: str, results: tuple[GateResult, ...], verdict: str, *, as_json: bool) -> None:
    """Print one JSON object, or a line with the verdict, then a line for each result and each finding."""
    if as_json:
        print_results(json.dumps({"file": name, "gates": [result.model_dump(mode="json") for result in results]}))
        return
    print_text(f"{name}: {'refused' if is_refused(results) else verdict}", *result_lines(results))


def _wheels(path: Path, context: Context) -> list[Path]:
    """Return a wheel, or the wheels of cells and products in a release directory, without yanked ones that are gone."""
    if not path.is_dir() or path.suffix == ".whl":
        return [path]
    publisher = DirectoryPublisher(path)
    kept = [row for row in publisher.rows() if not row.yanked or (publisher.wheels_dir / row.filename).exists()]
    rows = [row for row in kept if row.cell or row.product in PRODUCTS]
    unknown = [row for row in rows if is_other_version(row.product, row.version, context)]
    for row in unknown:
        print_messages(f"warning: skipping {row.filename}: this checkout can only verify its own version")
    if len(rows) == len(unknown):
        hint = "name wheel files or another release directory"
        raise InputError("no wheels", f"the manifest of {path} names none", hint)
    return [publisher.wheels_dir / row.filename for row in rows if row not in unknown]
