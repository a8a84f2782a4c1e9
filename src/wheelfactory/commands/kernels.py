"""`wheelfactory kernels`."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from wheelfactory.commands.executor_options import (
    add_budget,
    add_cache_size,
    add_executor,
    add_remote,
    open_executor,
    read_deadline,
    read_remote,
    use_store,
)
from wheelfactory.commands.options import (
    Environ,
    add_cache,
    add_dest,
    add_matrix,
    add_option,
    as_directory,
    print_results,
    read_context,
)
from wheelfactory.commands.targets import open_archive_host, parse_repository
from wheelfactory.core.errors import DONE, InputError
from wheelfactory.core.files import remove_scratch
from wheelfactory.core.progress import Steps, log_to_stderr
from wheelfactory.kernels.archive_host import download_set, upload_set
from wheelfactory.kernels.compile import compile_kernels
from wheelfactory.kernels.compiler.shards import Shard
from wheelfactory.kernels.kernel_set import find_host_sets, group_kernel_sets, require_set, stored_set_name
from wheelfactory.kernels.prove import prove_kernels
from wheelfactory.kernels.resume import merge_set
from wheelfactory.kernels.setup_env import CompileScope, store_folder
from wheelfactory.matrix.expand import expand


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.epilog = (
        "example: wheelfactory kernels ck-62327233-rocm6.4-gfx942 --shard 1/4 --budget 5; "
        "`wheelfactory plan --all` lists the kernel sets and suggests a shard count for each"
    )
    parser.add_argument("set", metavar="SET", help="id of a kernel set, such as ck-62327233-rocm6.4-gfx942")
    add_option(parser, "--shard I/N", "compile only shard I of N, such as 2/4", type=_shard)
    add_option(parser, "--merge", "merge the shards in DIR into one archive; compile nothing")
    add_option(parser, "--upload DIR", "with --merge: upload the archive to a release directory", type=str)
    add_option(parser, "--download TARGET", "download the uploaded archive; compile nothing")
    add_option(
        parser,
        "--prove",
        "merge the shards, and execute a sample of the kernels of one arch on an emulator, or all of them; compile "
        "nothing. DIR must have the archives of SET and of its host code",
        choices=("sample", "all"),
        nargs="?",
        const="sample",
    )
    add_dest(parser, "kernels", "directory of archives")
    add_option(
        parser,
        "--measured-costs FILE",
        "measured compile costs to balance shards with; use the same FILE for every shard (default: built-in)",
        type=_file,
    )
    add_budget(parser)
    add_remote(parser)
    add_executor(parser)
    add_matrix(parser)
    add_cache(parser)
    add_cache_size(parser)


def _shard(text: str) -> Shard:
    try:
        return Shard.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _file(text: str) -> Path:
    path = Path(text)
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"not a file: {text}")
    return path.absolute()


def execute(options: argparse.Namespace, environ: Environ) -> int:
    """Compile a kernel set or one shard, merge its shards, or download it; print the path of the archive."""
    started = time.time()  # first: --budget includes reading the matrix and preparing images
    _check_combinations(options)
    context, dest = read_context(options, environ), as_directory(options.dest)
    matrix, cache = context.matrix, context.cache
    sets = group_kernel_sets(matrix, expand(matrix).cells)
    kernel_set = require_set(sets, options.set)
    remove_scratch(dest)  # leftovers of a killed run
    if options.download:
        name = stored_set_name(matrix, kernel_set, slim=options.slim)
        with use_store(cache, options.cache_size), log_to_stderr():
            archive = download_set(open_archive_host(options.download, environ), name, kernel_set.id, dest)
    elif options.merge:
        with use_store(cache, options.cache_size), log_to_stderr():
            archive = merge_set(dest, kernel_set.id, store_folder(cache))
            if options.upload:
                name = stored_set_name(matrix, kernel_set, slim=options.slim)
                upload_set(open_archive_host(options.upload, environ), name, archive)
    elif options.prove:
        with (
            use_store(cache, options.cache_size),
            open_executor(options, compiled=True, context=context) as executor,
            Steps(1) as steps,
            steps.step(f"executing {kernel_set.id}") as report_progress,
        ):
            host_sets = find_host_sets(sets, kernel_set)
            every = options.prove == "all"
            archive = prove_kernels(
                executor, kernel_set, host_sets, dest, report_progress, every=every, context=context
            )
    else:
        scope = CompileScope(
            shard=options.shard,
            shard_ledger=options.measured_costs,
            deadline=read_deadline(options, started),
            remote=None if options.shard else read_remote(options, environ),
        )
        with (
            use_store(cache, options.cache_size),
            open_executor(options, compiled=True, context=context) as executor,
            Steps(1) as steps,
            steps.step(f"{kernel_set.id} {options.shard or ''}".rstrip()) as report_progress,
        ):
            archive = compile_kernels(executor, kernel_set, scope, dest, report_progress, context=context)
    print_results(str(archive))
    return DONE


def _check_combinations(options: argparse.Namespace) -> None:
    """Raise `InputError` for options that contradict each other."""
    for action in ("merge", "download", "prove"):
        for other in ("shard", "budget", "measured_costs"):
            if getattr(options, action) and getattr(options, other):
                hint = "compile every shard first, then run --merge or --download without this option"
                raise InputError("bad arguments", f"--{action} with --{other.replace('_', '-')}", hint)
    if options.prove and (options.merge or options.download):
        raise InputError("bad arguments", "--prove with --merge or --download", "run them one after the other")
    if options.remote and (options.shard or options.merge or options.download or options.prove):
        hint = "a cluster compiles the whole set: leave out the other option"
        raise InputError("bad arguments", "--remote with --shard, --merge, --download or --prove", hint)
    if options.download and options.merge:
        raise InputError("bad arguments", "--download with --merge", "choose one of them")
    if options.upload and not options.merge:
        raise InputError("bad arguments", "--upload without --merge", "add --merge: only a merged archive is uploaded")
    if options.upload and parse_repository(options.upload):
        hint = "run the workflow build.yml there, which attests what it uploads; or upload to a directory"
        raise InputError("only workflow runs upload kernels to GitHub", options.upload, hint)
