"""`wheelfactory kernels`."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from wheelfactory.commands.executor_options import (
    add_executor,
    add_remote,
    open_executor,
    read_cluster,
    read_deadline,
    use_store,
)
from wheelfactory.commands.options import (
    add_dest,
    add_option,
    add_shared,
    as_directory,
    print_results,
    read_context,
)
from wheelfactory.commands.targets import open_archive_host, parse_repository, require_target
from wheelfactory.core.errors import DONE, InputError
from wheelfactory.core.files import remove_scratch
from wheelfactory.core.progress import Steps, log_to_stderr
from wheelfactory.kernels.compile import compile_kernels, merge_set
from wheelfactory.kernels.compiler.costs import Shard
from wheelfactory.kernels.kernel_set import find_host_sets, group_kernel_sets, require_set, stored_set_name
from wheelfactory.kernels.prove import prove_kernels
from wheelfactory.kernels.setup_env import CompileScope, store_folder
from wheelfactory.kernels.storage import download_set, upload_set
from wheelfactory.matrix.expand import expand


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.epilog = (
        "example: wheelfactory kernels ck-62327233-rocm6.4-gfx942 --shard 1/4 --budget 5\n"
        "`wheelfactory plan --all` lists the kernel sets and suggests a shard count for each"
    )
    parser.add_argument("set", metavar="SET", help="id of a kernel set, such as ck-62327233-rocm6.4-gfx942")
    add_option(parser, "--shard I/N", "compile only shard I of N, such as 2/4", type=_shard)
    add_option(parser, "--merge", "merge the shards in the directory of --dest into one archive; compile nothing")
    add_option(parser, "--download TARGET", "download the archive from a release directory or github:OWNER/REPO")
    what = (
        "merge the shards, execute kernels of SET on an emulator (a sample, or all) and compare the results; compile "
        "nothing. The directory of --dest must have the archives of SET and of its host code"
    )
    add_option(parser, "--prove sample|all", what, nargs="?", const="sample")
    add_option(parser, "--upload DIR", "with --merge: upload the archive to a release directory", type=str)
    add_dest(parser, "kernels", "directory of archives")
    what = "compile costs to balance shards with; use the same FILE for every shard (default: built-in)"
    add_option(parser, "--measured-costs FILE", what, type=_file)
    add_shared(parser, "--budget HOURS")
    add_remote(parser)
    add_executor(parser)
    add_shared(parser, "--matrix FILE", "--cache DIR", "--cache-size SIZE")


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


def execute(options: argparse.Namespace) -> int:
    """Compile a kernel set or one shard, merge its shards, or download it; print the path of the archive."""
    started = time.time()  # first: --budget includes reading the matrix and preparing images
    _check_combinations(options)
    context, dest = read_context(options), as_directory(options.dest)
    matrix, cache = context.matrix, context.cache
    sets = group_kernel_sets(matrix, expand(matrix).cells)
    kernel_set = require_set(sets, options.set)
    remove_scratch(dest)  # leftovers of a killed run
    if options.download or options.merge:
        stored = stored_set_name(matrix, kernel_set, slim=options.slim)
        with use_store(cache, options.cache_size), log_to_stderr():
            if options.download:
                require_target(options.download)
                host = open_archive_host(options.download, options.environ)
                archive = download_set(host, stored, kernel_set.id, dest)
            else:
                archive = merge_set(dest, kernel_set.id, store_folder(cache))
            if options.upload:
                upload_set(open_archive_host(options.upload, options.environ), stored, archive)
        print_results(str(archive))
        return DONE
    name = f"executing {kernel_set.id}" if options.prove else f"{kernel_set.id} {options.shard or ''}".rstrip()
    with (
        use_store(cache, options.cache_size),
        open_executor(options, compiled=True, context=context) as executor,
        Steps(1) as steps,
        steps.step(name) as report,
    ):
        if options.prove:
            host_sets, every = find_host_sets(sets, kernel_set), options.prove == "all"
            archive = prove_kernels(executor, kernel_set, host_sets, dest, report, every=every, context=context)
        else:
            scope = _scope(options, started)
            archive = compile_kernels(executor, kernel_set, scope, dest, report, context=context)
    print_results(str(archive))
    return DONE


def _scope(options: argparse.Namespace, started: float) -> CompileScope:
    cluster, deadline = None if options.shard else read_cluster(options), read_deadline(options, started)
    return CompileScope(shard=options.shard, shard_ledger=options.measured_costs, deadline=deadline, cluster=cluster)


def _check_combinations(options: argparse.Namespace) -> None:
    """Raise `InputError` for options that contradict each other."""
    names = ("merge", "download", "prove", "shard", "remote", "budget", "measured_costs")
    first, *others = [f"--{name.replace('_', '-')}" for name in names if getattr(options, name)] or [""]
    if others and (first in ("--merge", "--download", "--prove") or (first, others[0]) == ("--shard", "--remote")):
        which = f"{first} with {others[0]}"
        raise InputError("bad arguments", which, "run them one after the other, each in a command of its own")
    if options.upload and not options.merge:
        raise InputError("bad arguments", "--upload without --merge", "add --merge: only a merged archive is uploaded")
    if options.upload and parse_repository(options.upload):
        hint = "run the workflow build.yml there, which attests what it uploads; or upload to a directory"
        raise InputError("only workflow runs upload kernels to GitHub", options.upload, hint)
