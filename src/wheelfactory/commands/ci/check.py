"""`wheelfactory ci check`."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from wheelfactory.commands.options import Environ, add_option, add_shared, prepare_cache, print_messages, print_results
from wheelfactory.commands.targets import (
    LOST_NAME,
    add_readonly_target,
    find_site_url,
    parse_repository,
    read_published_rows,
    require_target,
    yank_lost,
)
from wheelfactory.core.errors import DONE, VERIFICATION_FAILED, FactoryError, InputError
from wheelfactory.core.files import write_atomic
from wheelfactory.core.progress import log_to_stderr
from wheelfactory.core.wrap import count_text
from wheelfactory.matrix.expand import expand
from wheelfactory.matrix.load import load_matrix
from wheelfactory.release.bundle import require_sigstore
from wheelfactory.release.manifest import WheelRow, read_manifest
from wheelfactory.release.published_site import read_site
from wheelfactory.site.check_installs import InstallSource, check_install, choose_sample, count_weeks, require_uv
from wheelfactory.site.check_served import check_cells, check_files, wait_for_site
from wheelfactory.verify.gates import is_refused
from wheelfactory.verify.result import GateResult, Status, result_lines

_SAMPLE = 4
"""The newest wheel, one of each other kind (CK, Triton, flash-attention-amd), and one more of the newest's kind."""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.epilog = "example: wheelfactory ci check github:OWNER/REPO --sample 2 --report report.txt"
    add_readonly_target(parser)
    add_shared(parser, "--site URL")
    help_text = "manifest of `index --dest` with the rows that the site must serve (default: the rows of TARGET)"
    add_option(parser, "--expect FILE", help_text)
    add_option(parser, "--sample N", "install N wheels with pip and with uv (default: %(default)s)", default=_SAMPLE)
    help_text = "wait up to MINUTES (at most 60) for the site to serve the rows of TARGET (default: %(default)s)"
    add_option(parser, "--wait MINUTES", help_text, type=int, choices=range(61), default=0)
    add_option(parser, "--torch-index URL", "install torch from this index, such as a mirror of those in matrix.yaml")
    add_option(parser, "--report FILE", "also write the results, or the error, to FILE")
    add_shared(parser, "--matrix FILE", "--cache DIR")


def execute(options: argparse.Namespace) -> int:
    """Compare a site with its target, install a sample of its wheels, and print the results; exit code 3 for drift."""
    try:
        checked = _check(options)
    except FactoryError as error:
        _write_report(options.report, [f"error: {error}", f"hint: {error.hint}"])
        raise
    if not checked:
        print_messages(f"not run: nothing is published in {options.target}")
        return DONE
    lines = list(report_lines(checked))
    _write_report(options.report, lines)
    print_results(*lines)
    return VERIFICATION_FAILED if has_drift(checked) else DONE


def _check(options: argparse.Namespace) -> Sequence[Checked]:
    """Check the site, then its sample; nothing if nothing is published."""
    require_uv(options.environ)
    require_sigstore()
    cache, matrix = prepare_cache(options), load_matrix(options.matrix)
    expected, published = _read_rows(options)
    address = find_site_url(options.target, options.site)
    if address is None:
        raise InputError("cannot determine the URL of the site", options.target, "pass it with --site URL")
    if not (published or _serves_wheels(address, options.environ)):
        return ()
    with log_to_stderr():
        site, results = wait_for_site(address, expected, 60 * options.wait, time.sleep, options.environ)
        indexes = {version: options.torch_index or facts.index for version, facts in matrix.rocm.items()}
        source = InstallSource(site, address.rstrip("/"), indexes)
        week = count_weeks(datetime.now(timezone.utc).date())
        expansion = expand(matrix)
        cells = check_cells(published, expansion.cells)
        of_site = Checked(address, address, (*results, check_files(site), cells))
        sample = choose_sample(site.rows, expansion.pythons, options.sample, week)
        installed = ((wheel, check_install(wheel, source, cache)) for wheel in sample)
        return [of_site, *(Checked(wheel.row.filename, wheel.title, found) for wheel, found in installed)]


def _serves_wheels(address: str, environ: Environ) -> bool:
    """Whether a site has rows, perhaps of releases that were deleted since; before the first release there is none."""
    with suppress(InputError):
        return bool(read_site(address, environ).rows)
    return False


def _read_rows(options: argparse.Namespace) -> tuple[Sequence[WheelRow], Sequence[WheelRow]]:
    """Return the rows that the site must serve, and those with the rows of wheels that were deleted from GitHub.

    Raises `InputError` if they are not readable.
    """
    if options.expect:
        expected, lost = read_manifest(options.expect), options.expect.with_name(LOST_NAME)
        return expected, (*expected, *(yank_lost(read_manifest(lost)) if lost.exists() else ()))
    require_target(options.target)
    rows = read_published_rows(options.target, options.environ)
    if parse_repository(options.target):
        return [row for row in rows if row.url], rows
    return read_manifest(Path(options.target)), rows


def _write_report(path: Path | None, lines: Sequence[str]) -> None:
    if path:
        write_atomic(path, "".join(f"{line}\n" for line in lines).encode())


@dataclass(frozen=True)
class Checked:
    """A site or a sampled wheel, and the results of its checks."""

    name: str
    title: str
    """The name with details."""
    results: tuple[GateResult, ...]


def has_drift(checked: Sequence[Checked]) -> bool:
    """Whether any check failed."""
    return any(is_refused(one.results) for one in checked)


def report_lines(checked: Sequence[Checked]) -> Iterator[str]:
    """Report the checks of a site, which comes first in `checked`, and of its sampled wheels."""
    failures, not_run = [], []
    for one in checked:
        for result in one.results:
            step = f"{one.name}: {result.gate}"
            failures += [f"failed: {step}: {str(found).removeprefix(f'{one.name}: ')}" for found in result.findings]
            if result.status is Status.NOT_RUN:
                not_run.append(f"not run: {step}: {result.detail}")
    site, *wheels = checked
    verdict = f"drift, {count_text(len(failures), 'failure')}" if failures else "no drift"
    yield f"{site.name}: {verdict}; {count_text(len(wheels), 'wheel')} in the sample"
    yield from failures
    yield from not_run
    if not wheels:
        yield "not run: installs: the site has no verified wheel of a cell in matrix.yaml"
    for one in checked:
        yield ""
        yield one.title
        yield from result_lines(one.results)
