"""Simulate a kernel set on a cluster with the scheduling of `kernels --remote`, and measure its client.

    python benchmarks/cluster.py [--machines 20] [--cores 16] [--actions 2775] [--real]

The first table simulates: every source of flash-attn 2.8.3 for one arch with its cost of the seed table (which is
measured), most expensive first, always some queued at the server, `REMOTE_S` seconds of overhead for each compile, and
costs that differ from the prediction by `SEED_ERROR` in either direction. Ideal is the sum over all cores, or the
longest compile if that is more.

The second runs the client: trivial actions with all headers of that release, through the server of
tests/remote_server.py with two slots, in another process. With `--real` they go through BuildGrid, PostgreSQL and two
buildbox workers (needs root; see tests/remote_cluster.py), without headers, which take the workers most of the time.
It prints wall time, the client's CPU seconds, its peak memory and the bytes that it uploaded. A few minutes.
"""

from __future__ import annotations

import argparse
import heapq
import logging
import os
import random
import resource
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "packages/remote_execution/src"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from code_object_bytes import code_object
from hip_toolchain import make_hip_toolchain
from kernel_flags import FLAGS
from remote_cluster import cluster
from remote_server import remote_server
from wheelfactory.build.sources import fetch_source, unpack_source
from wheelfactory.core.files import MATRIX
from wheelfactory.core.progress import ignore_progress
from wheelfactory.kernels.compiler.costs import SEED_ERROR, Ledger, seed_cost
from wheelfactory.kernels.compiler.key import header_paths
from wheelfactory.kernels.compiler.store import SetKey, Store
from wheelfactory.kernels.compiler.survey import Survey, SurveyPart
from wheelfactory.kernels.compiler.targets import compiled_sources
from wheelfactory.kernels.estimate import REMOTE_S
from wheelfactory.kernels.source_list import list_sources
from wheelfactory.matrix.load import load_matrix
from wheelfactory_remote.cluster import fill_store
from wheelfactory_remote.kernels import find_missing_kernels
from wheelfactory_remote.server import parse_remote

RELEASE, TARGETS, SEED = "2.8.3", ("gfx942",), 22
COMMENT, PLATFORM = "clang version 19.0.0", "2" * 64
OBJECT = code_object(*TARGETS, code=COMMENT.encode())
TRIVIAL = """#!/bin/sh
for output; do :; done
cat /mnt/object > "$output"
"""
"""What workers run in place of hipcc."""


def simulate(predicted: Sequence[float], slots: int) -> tuple[float, float]:
    """Return wall and ideal seconds of compiles on `slots` cores that take the next most expensive one when free."""
    chosen = random.Random(SEED)  # noqa: S311 - the same costs each time
    order = sorted(predicted, reverse=True)
    actual = [cost * chosen.uniform(1 - SEED_ERROR, 1 + SEED_ERROR) for cost in order]
    free = [0.0] * slots
    for cost in actual:
        heapq.heapreplace(free, free[0] + cost + REMOTE_S)
    return max(free), max(sum(actual) / slots, max(actual))


def serve(pipe: Any) -> None:
    """Serve trivial results until the pipe says to end."""
    with remote_server(run=lambda *_: (0, OBJECT), workers=2) as server:
        pipe.send(server.url)
        pipe.recv()


@contextmanager
def simple_server() -> Iterator[str]:
    """Run the server of the tests in another process; yield its address."""
    ours, theirs = get_context("spawn").Pipe()
    process = get_context("spawn").Process(target=serve, args=(theirs,))
    process.start()
    yield ours.recv()
    ours.send("end")
    process.join()


@contextmanager
def real_server(folder: Path, cache: Path) -> Iterator[str]:
    """Run BuildGrid, PostgreSQL and two buildbox workers; yield the address."""
    folder.mkdir()
    (folder / "object").write_bytes(OBJECT)
    (folder / "trivial").write_text(TRIVIAL)
    (folder / "trivial").chmod(0o755)
    with cluster(folder, make_hip_toolchain(cache), cache, PLATFORM) as running:
        yield running.url


def make_survey(count: int, tree: Path, headers: Sequence[Path]) -> Survey:
    """A build of `count` trivial kernels in the sources of a release, with these of its headers."""
    names = tuple(f"fmha_fwd_d64_fp16_{number}" for number in range(count))
    (tree / "build").mkdir()
    for name in names:
        (tree / f"build/{name}.hip").write_text(f"// {name}\n")
    relative = tuple(str(path.relative_to(tree)) for path in headers)
    part = SurveyPart(SetKey({"targets": list(TARGETS)}, names), ("/mnt/trivial",), names)
    sources = {name: f"build/{name}.hip" for name in names}
    return Survey(str(tree), relative, sources, "1" * 64, PLATFORM, COMMENT, {}, (part,))


def measure(survey: Survey, url: str, kernels: Path) -> None:
    """Print what the actions of a survey cost the client."""
    missing = find_missing_kernels(survey, kernels, Ledger())
    before, begin = cpu_s(), time.perf_counter()
    fill_store(survey, missing, parse_remote(url), ignore_progress)
    wall, used = time.perf_counter() - begin, cpu_s() - before
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    (part,) = survey.parts
    store = Store(kernels, part.key)
    saved = len(missing) - len(store.find_missing(part.sources))
    print(f"{len(missing)} actions, {len(survey.headers)} headers: {saved} objects saved in {wall:.1f} s")
    print(f"client: {used / len(missing):.4f} CPU s an action, peak {peak:.0f} MiB")


def cpu_s() -> float:
    """CPU seconds of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> int:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machines", type=int, default=20)
    parser.add_argument("--cores", type=int, default=16)
    parser.add_argument("--actions", type=int, default=2775)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache/wheelfactory")
    parser.add_argument("--real", action="store_true")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    releases = load_matrix(MATRIX).flash_attn
    found = list_sources(RELEASE, releases[RELEASE], options.cache, os.environ)
    costs = [seed_cost(name, TARGETS).cpu_s for name in compiled_sources(found.sources, TARGETS)]
    print("| machines x cores | compiles | CPU h | ideal, min | wall, min | wall / ideal |")
    print("|---|--:|--:|--:|--:|--:|")
    for machines in sorted({1, options.machines}):
        wall, ideal = simulate(costs, machines * options.cores)
        figures = f"{len(costs)} | {sum(costs) / 3600:.1f} | {ideal / 60:.1f} | {wall / 60:.1f} | {wall / ideal:.3f}"
        print(f"| {machines} x {options.cores} | {figures} |")
    source = fetch_source(RELEASE, releases[RELEASE], options.cache / "sources", os.environ)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tree = unpack_source(source, folder / "tree")
        survey = make_survey(options.actions, tree, [] if options.real else header_paths(FLAGS, tree))
        with real_server(folder / "cluster", options.cache) if options.real else simple_server() as url:
            measure(survey, url, folder / "kernels")
    return 0


if __name__ == "__main__":
    sys.exit(main())
