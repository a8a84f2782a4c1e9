"""Compile a sample of real kernels in the ordinary way and in parts, and print what each way costs.

    python benchmarks/kernel_parts.py [--kernels 40] [--jobs 2] [--results FILE]

The kernels are drawn from the sources of flash-attn 2.8.3 by a fixed seed, of each kind in proportion to its number of
files. Debian's HIP compiler (see tests/hip_toolchain.py) compiles each with upstream's flags in the ordinary way, and
then in parts with precompiled headers, for one arch; every fourth kernel also for three archs, as these take 3 times as
long. Whole objects are put together from the parts, and their bytes compared with the ordinary ones. Prints CPU seconds
and peak memory of both ways by kind, with the headers in proportion to all files, and the error of the forecast
(`SEED_COSTS`) for these compiles. --results keeps each kernel's figures, and a later run goes on from there. 40 kernels
take an hour or two on two cores.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median, quantiles

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from hip_rocm import make_hip_rocm
from hip_toolchain import make_hip_toolchain
from kernel_flags import FLAGS
from wheelfactory.build.sources import fetch_source, unpack_source
from wheelfactory.core.files import MATRIX
from wheelfactory.core.process import capture
from wheelfactory.kernels.compiler.commands import PLACEHOLDER, CompileCommands, Shortcuts
from wheelfactory.kernels.compiler.costs import Ledger, parse_kernel_kind, seed_cost
from wheelfactory.kernels.compiler.hipcc import read_compiler
from wheelfactory.kernels.compiler.key import CompileInputs, Edge
from wheelfactory.kernels.compiler.objects import embed, read_bundler
from wheelfactory.kernels.compiler.schedule import Compile, EndedCompile, run_compiles
from wheelfactory.kernels.compiler.targets import HOST, split_targets, whole_targets
from wheelfactory.kernels.generator_commands import parse_generator_commands
from wheelfactory.kernels.source_list import list_sources
from wheelfactory.matrix.load import load_matrix

RELEASE, SEED = "2.8.3", 22
ONE, ARCHS = ("gfx942",), ("gfx90a", "gfx942", "gfx950")
"""The archs of the two objects that are compared."""

Ways = dict[str, tuple[float, int]]
"""CPU seconds and peak MiB of one kernel's compiles, by their targets."""


def draw(sources: Sequence[str], count: int) -> list[str]:
    """Draw kernels by the seed, of each kind in proportion to its number of files."""
    kinds: dict[str, list[str]] = defaultdict(list)
    for name in sources:
        kinds[parse_kernel_kind(name)[0]].append(name)
    shares = {kind: count * len(names) / len(sources) for kind, names in kinds.items()}
    numbers = {kind: int(share) for kind, share in shares.items()}
    largest = sorted(shares, key=lambda kind: (numbers[kind] - shares[kind], kind))
    for kind in largest[: count - sum(numbers.values())]:
        numbers[kind] += 1
    chosen = random.Random(SEED)  # noqa: S311 - the same kernels each time
    drawn = [name for kind in sorted(kinds) for name in chosen.sample(sorted(kinds[kind]), numbers[kind])]
    return chosen.sample(drawn, count)


def make_commands(cache: Path, folder: Path) -> CompileCommands:
    """Unpack and generate the sources, and make the commands of a build of all kernels in `folder`."""
    rocm = make_hip_rocm(make_hip_toolchain(cache), folder / "rocm", folder)
    release = load_matrix(MATRIX).flash_attn[RELEASE]
    tree = unpack_source(fetch_source(RELEASE, release, cache / "sources", os.environ), folder / "tree")
    (tree / "build").mkdir()
    for command in parse_generator_commands((tree / "setup.py").read_text(), RELEASE, ()):
        capture(command, cwd=tree)
    for path in [*(tree / "build").glob("*.cpp")]:
        path.rename(path.with_suffix(".hip"))  # as hipify names it
    hipcc, scratch = str(rocm / "bin/hipcc"), folder / "objects"
    scratch.mkdir()
    (scratch / PLACEHOLDER).write_bytes(b"\0")
    paths = [*(tree / "build").glob("*.hip")]
    inputs = CompileInputs(
        kernels={path.stem: Edge("", str(path), str(path.with_suffix(".o"))) for path in paths},
        bindings=(),
        hipcc=hipcc,
        flags=FLAGS,
        archs=ARCHS,
        compiler=read_compiler(hipcc, os.environ),
        keys={},
        early_inline_disabled=True,
        guards={},
        environ=os.environ,
    )
    return CompileCommands(inputs, Ledger(), scratch)


def run(compiles: Sequence[Compile], jobs: int) -> Iterator[EndedCompile]:
    """Run compiles, which must succeed."""
    for item in compiles:
        item.output.parent.mkdir(exist_ok=True)
    for ended in run_compiles(compiles, jobs, lambda _: True):
        if ended.code:
            raise SystemExit(f"{ended.compile.name} failed:\n{ended.output}")
        yield ended


def measure(wanted: Mapping[str, tuple[str, ...]], commands: CompileCommands, jobs: int) -> Iterator[dict[str, object]]:
    """Compile each kernel for its archs in both ways; yield the figures of each header, then of each compile."""
    first = sorted({commands.preamble(name) for name in commands.inputs.kernels})
    parts = split_targets(ARCHS)
    shortcuts = Shortcuts({(names, part): commands.header_path(names, part) for names in first for part in parts})
    for ended in run([commands.header(*item) for item in shortcuts.headers], jobs):
        yield {"kernel": "", "way": ended.compile.name, "cpu": ended.cpu_s, "mib": ended.peak_mib}
    asked = commands.kernel(next(iter(wanted)), whole_targets(ARCHS), commands.scratch / "asked.o")
    bundler = read_bundler(asked.argv, asked.folder, asked.environ, ARCHS)
    ways = {name: ways_of(archs) for name, archs in wanted.items()}
    compiles = [
        commands.kernel(name, way, commands.scratch / "-".join(way) / f"{name}.o", shortcuts)
        for name in wanted
        for way in ways[name]
    ]
    done: Counter[str] = Counter()
    for ended in run(compiles, jobs):
        name = ended.compile.source
        yield {"kernel": name, "way": " ".join(ended.compile.targets), "cpu": ended.cpu_s, "mib": ended.peak_mib}
        done[name] += 1
        for archs in (ONE, ARCHS) if done[name] == len(ways[name]) else ():
            ordinary = commands.scratch / "-".join(whole_targets(archs)) / f"{name}.o"
            if not ordinary.exists():
                continue
            paths = {arch: commands.scratch / arch / f"{name}.o" for arch in archs}
            code = bundler.bundle({arch: path.read_bytes() for arch, path in paths.items()})
            if embed((commands.scratch / HOST / f"{name}.o").read_bytes(), code) != ordinary.read_bytes():
                raise SystemExit(f"{name}: the object in parts differs from the ordinary one for {' '.join(archs)}")


def archs_of(names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The archs to compile each kernel for: every fourth for all."""
    return {name: ARCHS if number % 4 == 0 else ONE for number, name in enumerate(names)}


def ways_of(archs: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The lists of targets of all compiles of a kernel for these archs, and for `ONE`."""
    return [*dict.fromkeys((whole_targets(ONE), whole_targets(archs), *split_targets(archs)))]


def print_costs(rows: Iterable[Mapping[str, object]], sources: Sequence[str]) -> None:
    """Print CPU seconds and peak memory of both ways by kind, and the ratio of all with the headers' share."""
    figures: dict[str, Ways] = defaultdict(dict)
    for row in rows:
        figures[str(row["kernel"])][str(row["way"])] = (float(str(row["cpu"])), int(str(row["mib"])))
    headers = figures.pop("")
    print("| kind | kernels | archs | ordinary, CPU s | in parts, CPU s | ratio | peak MiB, ordinary | in parts |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|")
    for archs in (ONE, ARCHS):
        wanted = {" ".join(way) for way in ways_of(archs)}
        by_kind: dict[str, list[Ways]] = defaultdict(list)
        for name, ways in sorted(figures.items()):
            if wanted <= ways.keys():
                by_kind[parse_kernel_kind(name)[0]].append(ways)
        for kind, members in by_kind.items():
            print_row(kind, members, archs, 0.0)
        every = [ways for members in by_kind.values() for ways in members]
        used = sum(cpu for way, (cpu, _) in headers.items() if way.rpartition(" ")[2] in (*archs, HOST))
        print_row("all, with headers", every, archs, used * len(every) / len(sources))
    print_forecast(
        [(name, tuple(way.split()), cpu) for name, ways in figures.items() for way, (cpu, _) in ways.items()]
    )


def print_row(kind: str, members: Sequence[Ways], archs: tuple[str, ...], header_cpu_s: float) -> None:
    """Print the figures of kernels of a kind for these archs."""
    way, parts = " ".join(whole_targets(archs)), (*archs, HOST)
    ordinary = sum(ways[way][0] for ways in members)
    in_parts = sum(ways[part][0] for ways in members for part in parts) + header_cpu_s
    peaks = [max(ways[part][1] for ways in members for part in wanted) for wanted in ((way,), parts)]
    print(f"| {kind} | {len(members)} | {len(archs)} | {ordinary:.1f} | {in_parts:.1f}", end=" | ")
    print(f"{in_parts / ordinary:.3f} | {peaks[0]} | {peaks[1]} |")


def print_forecast(compiles: Sequence[tuple[str, tuple[str, ...], float]]) -> None:
    """Print the error of `SEED_COSTS` for compiles of source, targets, CPU seconds, on a machine of another speed."""
    ratios = [cpu / seed_cost(name, targets).cpu_s for name, targets, cpu in compiles]
    speed = median(ratios)
    errors = [abs(ratio / speed - 1) for ratio in ratios]
    total = sum(cpu for *_, cpu in compiles) / sum(speed * seed_cost(*item[:2]).cpu_s for item in compiles) - 1
    print(f"\nforecast: {len(compiles)} compiles, this machine needs {speed:.2f} of its CPU seconds (median);", end=" ")
    print(f"with that factor the sum is off by {total:+.1%}, a compile by {median(errors):.0%} (median)", end=", ")
    print(f"{quantiles(errors, n=10)[-1]:.0%} (nine of ten)")


def main() -> None:
    """Compile, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    parser.add_argument("--cache", type=Path, default=home / "wheelfactory")
    parser.add_argument("--kernels", type=int, default=40)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--results", type=Path)
    given = parser.parse_args()
    sources = list_sources(RELEASE, load_matrix(MATRIX).flash_attn[RELEASE], given.cache, os.environ).sources
    names = draw(sources, given.kernels)
    kept = given.results.read_text().splitlines() if given.results and given.results.exists() else []
    rows = [json.loads(line) for line in kept]
    seen = Counter(row["kernel"] for row in rows)
    missing = {name: archs for name, archs in archs_of(names).items() if seen[name] < len(ways_of(archs))}
    rows = [row for row in rows if row["kernel"] not in missing and (row["kernel"] or not missing)]
    if missing:
        with tempfile.TemporaryDirectory() as folder:
            for row in measure(missing, make_commands(given.cache, Path(folder)), given.jobs):
                rows.append(row)
                if given.results:
                    with given.results.open("a") as file:
                        file.write(json.dumps(row) + "\n")
    print_costs(rows, sources)


if __name__ == "__main__":
    main()
