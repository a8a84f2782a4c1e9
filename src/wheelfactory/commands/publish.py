"""`wheelfactory publish`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path

from wheelfactory.commands.executor_options import add_gate_executor, has_platform_wheel, open_executor
from wheelfactory.commands.options import (
    add_option,
    add_shared,
    as_directory,
    print_messages,
    print_results,
    read_context,
)
from wheelfactory.commands.targets import add_target, find_site_url, open_publisher, parse_repository, require_target
from wheelfactory.core.cell import split_names
from wheelfactory.core.errors import DONE, InputError
from wheelfactory.core.files import lock_folder, remove_scratch, write_atomic
from wheelfactory.core.progress import Steps, log_to_stderr
from wheelfactory.core.wrap import count_text
from wheelfactory.gpu.validation_report import read_validation
from wheelfactory.matrix.facts import Context
from wheelfactory.release.additions import (
    as_addition,
    fetch_missing_dependencies,
    read_additions,
    require_products,
    split_published,
)
from wheelfactory.release.bundle import ATTESTED, read_bundle
from wheelfactory.release.directory import DirectoryPublisher
from wheelfactory.release.manifest import WheelRow
from wheelfactory.release.transaction import (
    Addition,
    Publisher,
    add_attestation,
    add_evidence,
    sha256sums,
    silent_step,
    stage,
)
from wheelfactory.release.transaction import publish as publish_wheels
from wheelfactory.release.transaction import yank as yank_wheel
from wheelfactory.site.notes import release_notes
from wheelfactory.site.site import Site
from wheelfactory.verify.gates import parse_extended
from wheelfactory.verify.gates import verify as run_gates


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.epilog = "example: wheelfactory publish github:OWNER/REPO dist/*.whl --tag v1.2 --dry-run"
    add_target(parser)
    what = "wheel to verify and publish, or release directory of wheels that were verified before"
    parser.add_argument("paths", nargs="*", type=Path, metavar="WHEEL", help=what)
    add_option(parser, "--tag TAG", "publish as this release tag (GitHub only)")
    what = "with a release directory: accept only wheels of these cells (ids, separated by spaces)"
    add_option(parser, "--expect CELLS", what)
    add_option(parser, "--wheels DIR", "with a release directory: read its wheels from DIR (default: its own)")
    add_option(parser, "--stage", "upload wheels and manifest rows into a draft, and publish nothing yet")
    add_option(parser, "--publish-staged", "publish what --stage uploaded and --attestation attested")
    what = "with --stage: write the sha256 of each wheel that needs an attestation to FILE; create no FILE if none does"
    add_option(parser, "--checksums FILE", what)
    add_option(parser, "--dry-run", "print each call that would change the target, and change nothing")
    add_option(parser, "--yank NAME", "mark the published wheel of this file name as withdrawn: installers skip it")
    add_option(parser, "--reason TEXT", "with --yank: reason that installers show", "")
    what = "add reports of `wheelfactory validate --json` to the published wheels that they name"
    add_option(parser, "--evidence REPORT", what, [], nargs="+")
    add_option(parser, "--attestation BUNDLE", "store this Sigstore bundle beside each staged wheel that it signs")
    add_shared(parser, "--site URL", "--matrix FILE", "--cache DIR", "--extended LIST")
    add_gate_executor(parser)


def execute(options: argparse.Namespace) -> int:
    """Verify and publish wheels, yank one, or add evidence; then update the site of a release directory.

    Or store an attestation beside staged wheels.
    """
    target: str = options.target
    context = read_context(options)
    site, repository = find_site_url(target, options.site), parse_repository(target)
    notes = partial(release_notes, matrix=context.matrix, site=site, repository=repository)
    dry_run_output = print_results if options.dry_run else None
    publisher = open_publisher(target, options.environ, tag=options.tag, notes=notes, dry_run_output=dry_run_output)
    _require_one_action(options, publisher)
    if options.attestation:
        return _add_attestation(options, publisher)
    additions = _collect_additions(options, publisher, context=context)
    if options.publish_staged and not additions:
        print_messages(f"nothing is staged in {target}")
        return DONE
    with _lock(publisher, dry_run=options.dry_run):
        rows = _change(options, publisher, additions, context=context)
        if isinstance(publisher, DirectoryPublisher) and not options.stage:
            publisher.write_site(Site(context.matrix, rows, options.site).render())
    if options.checksums and (sums := {row.filename: row.sha256 for row in rows if row.project in ATTESTED}):
        write_atomic(options.checksums, sha256sums(sums))
    total = f"{count_text(len(rows), 'file')} {'staged' if options.stage else 'published'}"
    return _report(options, f"{options.yank} is yanked; {total}" if options.yank else total)


def _report(options: argparse.Namespace, done: str) -> int:
    if options.dry_run:
        print_messages("dry run: nothing was changed")
    else:
        place = options.target if parse_repository(options.target) else as_directory(Path(options.target))
        print_results(f"{place}: {done}")
    return DONE


def _add_attestation(options: argparse.Namespace, publisher: Publisher) -> int:
    bundle = read_bundle(options.attestation)
    with _lock(publisher, dry_run=options.dry_run), log_to_stderr():
        wheels = add_attestation(publisher, bundle, str(options.attestation))
    for name in (name for name, stored in wheels.items() if not stored):
        print_messages(f"warning: skipping the attestation of {name}: no such file with this sha256 is staged")
    return _report(options, f"attestation of {count_text(sum(wheels.values()), 'wheel')} added")


def _require_one_action(options: argparse.Namespace, publisher: Publisher) -> None:
    """Raise `InputError` unless the options name exactly one action that the target supports."""
    target, changes = options.target, bool(options.yank) + bool(options.evidence) + bool(options.attestation)
    if changes + options.publish_staged + bool(options.paths) != 1 or (options.stage and not options.paths):
        hint = "pass wheels, or --publish-staged, --yank NAME, --evidence REPORT or --attestation BUNDLE"
        raise InputError("either publish, yank, add evidence or an attestation", target, hint)
    if options.checksums and not options.stage:
        raise InputError("bad arguments", "--checksums without --stage", "add --stage: a later job attests the wheels")
    if not isinstance(publisher, DirectoryPublisher) and options.tag is None:
        raise InputError("no release tag", target, "add --tag TAG; to yank or add evidence, use a new tag")
    if changes:
        require_target(target)


def _verify_wheels(options: argparse.Namespace, *, context: Context) -> list[Addition]:
    """Run the gates on the wheels among the arguments."""
    extended = tuple(parse_extended(options.extended))
    wheels = [path for path in options.paths if not path.is_dir()]
    with open_executor(options, compiled=has_platform_wheel(wheels), context=context) as executor, log_to_stderr():
        gates = partial(run_gates, extended=extended, runner=executor, context=context)
        return [as_addition(path, gates(path), cache=context.cache) for path in wheels]


def _collect_additions(options: argparse.Namespace, publisher: Publisher, *, context: Context) -> list[Addition]:
    """Return the wheels and rows that the arguments name, without duplicates."""
    expected = None if options.expect is None else split_names(options.expect)
    additions = _verify_wheels(options, context=context)
    folders = [path for path in options.paths if path.is_dir()]
    # the recorded gates are trusted here: the job with the release token must not run code of these wheels
    with log_to_stderr():
        recorded = [
            addition for path in folders for addition in read_additions(path, expected, options.wheels, context=context)
        ]
        if options.publish_staged:
            recorded += [(row, None) for row in publisher.staged_rows()]
    new, changed = split_published(recorded, publisher.rows() if recorded else ())
    for name in changed:
        print_messages(f"warning: skipping {name}: already published with different content")
    additions += new
    return list({(row.filename, row.sha256): (row, path) for row, path in reversed(additions)}.values())[::-1]


@contextmanager
def _lock(publisher: Publisher, *, dry_run: bool) -> Iterator[None]:
    """Lock a release directory against other runs."""
    # GitHub has no lock: the publisher finds what other runs publish, and applies its change to that
    if dry_run or not isinstance(publisher, DirectoryPublisher):
        yield
        return
    with lock_folder(publisher.folder):
        remove_scratch(publisher.folder)
        yield


def _change(
    options: argparse.Namespace, publisher: Publisher, additions: Sequence[Addition], *, context: Context
) -> Sequence[WheelRow]:
    """Yank, add evidence, or stage or publish the additions and missing dependencies.

    Returns the staged rows, or all published rows.
    """
    if options.yank or options.evidence:
        with log_to_stderr():
            if options.yank:
                return yank_wheel(publisher, options.yank, options.reason)
            return add_evidence(publisher, [read_validation(path) for path in options.evidence])
    filenames = [row.filename for row, _ in additions]
    # copying into a directory takes seconds; only uploads to GitHub need a progress display
    silent = isinstance(publisher, DirectoryPublisher)
    with nullcontext() if silent else log_to_stderr():
        missing = fetch_missing_dependencies(publisher, filenames, context=context)
    everything = [*missing, *additions]
    if not options.stage:  # a workflow stages it in the job of one batch
        require_products((row for row, _ in everything), publisher.rows(), context=context)
    with nullcontext() if silent else Steps(len(everything) + (not options.stage)) as steps:
        step = steps.step if steps else silent_step
        if not options.stage:
            return publish_wheels(publisher, everything, step)
        stage(publisher, everything, step)
        publisher.put_rows([row for row, _ in additions])
        return [row for row, _ in everything]
