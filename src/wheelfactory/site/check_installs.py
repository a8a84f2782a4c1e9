"""Install a sample of the published wheels as their users do, with pip and with uv; check what is installed.

The newest wheel is always in the sample. The other places are dealt to CK, Triton and flash-attention-amd in turn, and
each of these advances through its wheels from week to week.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from itertools import chain, zip_longest
from pathlib import Path

from wheelfactory.build.environments import Environment, clean_environ, make_python_environment
from wheelfactory.build.executor import torch_requirement
from wheelfactory.core.cell import FALLBACK_NAME, OFFERED_PRODUCTS, Cell
from wheelfactory.core.errors import BuildError, FactoryError, InputError
from wheelfactory.core.files import scratch_dir
from wheelfactory.core.label import IndexKey, index_path
from wheelfactory.core.process import failure_reason, run
from wheelfactory.core.progress import logger
from wheelfactory.core.published import InstallCommand, Installer, pip_for, uv_for
from wheelfactory.core.query import Interpreter, Packages
from wheelfactory.release.manifest import WheelRow
from wheelfactory.release.published_checks import check_installed
from wheelfactory.release.published_site import PublishedSite
from wheelfactory.release.verified import unverified_reason
from wheelfactory.site.wheel_text import newest_first_key
from wheelfactory.verify.proofs import IMPORT_PROGRAM
from wheelfactory.verify.result import Finding, GateResult, Status

Pythons = Mapping[Cell, tuple[str, ...]]
"""The cells of the matrix, each with its Pythons (`matrix.expand.Expansion.pythons`)."""


@dataclass(frozen=True)
class SampledWheel:
    """A wheel to install, and what a user of it has."""

    row: WheelRow
    cell: Cell
    """Names the ROCm and the torch to install it with; for a product, the cell of the newest wheel."""
    python: str
    """``3.12``."""
    index: IndexKey

    @property
    def title(self) -> str:
        """The file name with ROCm, torch and Python."""
        return f"{self.row.filename} (ROCm {self.cell.rocm}, torch {self.cell.torch}, Python {self.python})"


def count_weeks(day: date) -> int:
    """The number of ISO weeks before that of `day`, since year 1: it rises by one every Monday, across years too."""
    return (day.toordinal() - 1) // 7


def choose_sample(rows: Iterable[WheelRow], pythons: Pythons, number: int, week: int) -> tuple[SampledWheel, ...]:
    """Choose up to `number` wheels in the week `week` (`count_weeks`).

    Yanked and unverified wheels are never chosen, nor wheels whose torch cannot be installed: AMD's own, which is in
    its images only, and that of a cell which is not in the matrix.
    """
    flash_attn, products = _candidates(rows, pythons)
    if not flash_attn:
        return ()  # flash-attention-amd is listed only in the indexes of flash-attn
    newest = flash_attn[0]
    shared = _sampled(newest, newest, pythons, week)
    chosen = _choose(newest, [*flash_attn[1:], *products], number, week)
    return (shared, *(_sampled(row, newest, pythons, week) for row in chosen))


def _candidates(rows: Iterable[WheelRow], pythons: Pythons) -> tuple[list[WheelRow], list[WheelRow]]:
    """Return the flash-attn wheels and the offered products that can be chosen, the newest first."""
    usable = [row for row in rows if row.yanked is None and not unverified_reason(row)]
    usable.sort(key=newest_first_key)
    usable.sort(key=lambda row: row.published, reverse=True)  # stable, so equal times keep the order above
    installable = {cell.id for cell in pythons if not cell.amd_torch}
    flash_attn = [row for row in usable if row.index_key and row.cell in installable]
    return flash_attn, [row for row in usable if row.product in OFFERED_PRODUCTS]


def _sampled(row: WheelRow, newest: WheelRow, pythons: Pythons, week: int) -> SampledWheel:
    with_torch = row if row.cell else newest
    assert with_torch.cell and with_torch.index_key  # flash-attn wheels have both
    cell = Cell.parse(with_torch.cell)
    served = pythons[cell]
    return SampledWheel(row, cell, served[week % len(served)], row.index_key or with_torch.index_key)


def _choose(newest: WheelRow, others: Iterable[WheelRow], number: int, week: int) -> list[WheelRow]:
    """Pick round-robin over kinds of wheel: `newest`, and `number` - 1 of `others`."""
    queues: dict[str, list[WheelRow]] = defaultdict(list)
    for row in others:
        queues[_kind(row)].append(row)
    # the newest wheel has a place already, so its kind comes last
    kinds = sorted(queues, key=lambda kind: (kind == _kind(newest), kind in OFFERED_PRODUCTS, kind))
    places = _deal_places({kind: len(queues[kind]) for kind in kinds}, number - 1)
    return [row for kind in kinds for row in _take_turn(_alternate(queues[kind]), places[kind], week)]


def _kind(row: WheelRow) -> str:
    """The backend of a flash-attn wheel, or the name of a product."""
    return str(Cell.parse(row.cell).backend) if row.cell else row.product


def _deal_places(sizes: Mapping[str, int], number: int) -> Mapping[str, int]:
    """Deal places to the kinds in turn, to none more than its size."""
    turns = chain.from_iterable(zip_longest(*([kind] * size for kind, size in sizes.items())))
    dealt = [kind for kind in turns if kind is not None][:number]
    return {kind: dealt.count(kind) for kind in sizes}


def _take_turn(queue: Sequence[WheelRow], places: int, week: int) -> Sequence[WheelRow]:
    """Take `places` neighbours of a queue, the next ones each week: all are taken within len / places weeks."""
    start = week * places % len(queue)
    return [*queue[start:], *queue[:start]][:places]


def _alternate(rows: Iterable[WheelRow]) -> list[WheelRow]:
    """Reorder rows so that neighbours differ in ROCm or torch while any other pair of both is left."""
    pairs: dict[tuple[str, ...], list[WheelRow]] = defaultdict(list)
    for row in rows:
        pairs[(row.index_key or ())[:2]].append(row)
    return [row for turn in zip_longest(*pairs.values()) for row in turn if row is not None]


INSTALL_S = 1800.0
"""Seconds for one install command: torch for ROCm is a download of up to 5 GB."""
IMPORT_S = 600.0
"""Seconds for one import. It takes seconds, on a slow disk a minute."""

INSTALLERS = ("pip", "uv")

# of the user's settings, only certificates: an index of this machine is not the public one, and wheels get no token
_KEPT = ("PIP_CERT", "UV_NATIVE_TLS", "UV_SYSTEM_CERTS")
_SETTINGS = ("PIP_", "UV_", "PYTHON", "VIRTUAL_ENV", "CONDA_", "GITHUB_TOKEN", "GH_TOKEN")
# no caches, because a hosted runner's disk does not hold torch for ROCm twice
_OWN_SETTINGS = {
    "PIP_CONFIG_FILE": os.devnull,
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_NO_CACHE_DIR": "1",
    "PIP_NO_INPUT": "1",
    "UV_NO_CACHE": "1",
    "UV_NO_CONFIG": "1",
}
_START_OF_ERROR = re.compile(r"^\s*(ERROR\b|error\b|\u00d7).*", re.MULTILINE | re.DOTALL)
_REMEDY = "repair or yank what is published"


@dataclass(frozen=True)
class InstallSource:
    """Where the wheels of a check come from."""

    site: PublishedSite
    address: str
    """The address of the site, without a trailing slash."""
    torch_indexes: Mapping[str, str]
    """The index of torch for each ROCm version."""


def check_install(wheel: SampledWheel, source: InstallSource, cache: Path) -> tuple[GateResult, ...]:
    """Install a wheel with each of `INSTALLERS` in a fresh environment, check it as ``verify --from``, and import it.

    Each environment is removed before the next is made. Scratch folders are made below `cache`.
    """
    results: list[GateResult] = []
    for name in INSTALLERS:
        with scratch_dir(cache) as scratch:
            # what does not depend on the installer is reported once
            results += [new for new in _check_with(name, wheel, source, scratch) if new not in results]
    return tuple(results)


def require_uv(environ: Mapping[str, str]) -> None:
    """Raise `InputError` if there is no uv: what is missing on this machine is not drift."""
    if shutil.which("uv", path=_search_path(environ)) is None:
        raise InputError("uv is missing", f"neither beside {sys.executable} nor on PATH", "install uv")


def _search_path(environ: Mapping[str, str]) -> str:
    return os.pathsep.join(filter(None, (sysconfig.get_path("scripts"), environ.get("PATH"))))


def install_environ(environ: Mapping[str, str], scratch: Path) -> dict[str, str]:
    """The environment of installers and imports: our uv, temporary files in `scratch`, and no settings of this user."""
    inherited = clean_environ(environ).items()
    kept = {name: value for name, value in inherited if name in _KEPT or not name.startswith(_SETTINGS)}
    return {**kept, **_OWN_SETTINGS, "PATH": _search_path(environ), "TMPDIR": str(scratch)}


def install_commands(
    name: str, python: Path, wheel: SampledWheel, source: InstallSource
) -> tuple[InstallCommand, InstallCommand]:
    """The commands that the site shows to users of pip or uv: torch from PyTorch's index, then the wheel."""
    installer = _installer(name, python)
    torch = installer.install_torch(torch_requirement(wheel.cell), index=source.torch_indexes[wheel.cell.rocm])
    index, requirement = f"{source.address}/{index_path(wheel.index)}/", f"{wheel.row.project}=={wheel.row.version}"
    # as docs/how-to/use-it-in.md shows it
    options = ("--no-deps",) if wheel.row.project == FALLBACK_NAME else ()
    return torch, installer.install_from_index(index, *options, requirement)


def _installer(name: str, python: Path) -> Installer:
    if name == "uv":
        return uv_for(str(python))
    # the factory's own pip, because the environment has none
    program = (sys.executable, "-m", "pip", "--python", str(python))
    return replace(pip_for(), install_command=(*program, "install"))


def _check_with(name: str, wheel: SampledWheel, source: InstallSource, scratch: Path) -> Iterator[GateResult]:
    """Yield the results of one installer, up to the first step that prevents the next."""
    row, step, settings = wheel.row, f"install with {name}", install_environ(source.site.environ, scratch)
    try:
        environment = make_python_environment(scratch / "env", wheel.python, settings)
    except BuildError as error:
        yield _failed("environment", row, f"an environment of Python {wheel.python}", str(error))
        return
    logger.info("installing %s with %s", wheel.title, name)
    torch_command, command = install_commands(name, environment.python, wheel, source)
    for title, one in ((f"install torch with {name}", torch_command), (step, command)):
        _, reason = _run(one, settings, INSTALL_S)
        if reason:
            yield _failed(title, row, "to install", reason)
            return
    packages = Interpreter([str(environment.python), "-I", "-B"], settings).find_packages()
    torch = next((found.version for found in packages.distributions("torch")), "none")
    if f"torch=={torch}" != torch_requirement(wheel.cell):
        yield _failed(step, row, f"{torch_requirement(wheel.cell)} to stay installed", f"torch {torch}")
        return
    yield GateResult.from_findings(step, [], f"torch {torch}")
    # before the import, which runs code of the wheel
    yield from _check_published(name, packages, row, source.site, environment.folder)
    reason = _import(row, environment, settings)
    step = f"import after {name}"
    yield _failed(step, row, "to import", reason) if reason else GateResult(gate=step, status=Status.PASSED)


def _run(
    command: Sequence[str | Path], settings: Mapping[str, str], seconds: float, folder: Path | None = None
) -> tuple[str, str]:
    """Run a command; return its output, and why it failed, or an empty text."""
    try:
        done = run(command, environ=settings, cwd=folder, timeout=seconds)
    except subprocess.TimeoutExpired:
        return "", f"no end after {seconds:.0f} seconds"
    error = _START_OF_ERROR.search(done.stderr)
    return done.stdout, (error[0] if error else failure_reason(done)) if done.returncode else ""


def _import(row: WheelRow, environment: Environment, settings: Mapping[str, str]) -> str:
    """Import the package, isolated; return why that failed, or an empty text."""
    what = ("fallback", row.project) if row.product in OFFERED_PRODUCTS else ("wheel",)
    expected, command = json.dumps({"version": row.version}), [environment.python, "-I", "-B", IMPORT_PROGRAM, *what]
    output, reason = _run(command, settings, IMPORT_S, environment.folder)
    found = (output.splitlines() or ["no output"])[-1]
    return reason or ("" if found == expected else f"version {found}")


def _check_published(
    name: str, packages: Packages, row: WheelRow, site: PublishedSite, folder: Path
) -> Iterator[GateResult]:
    """Yield the checks of ``verify --from`` for the installed distribution."""
    installed = next(packages.distributions(row.project), None)
    if installed is None:
        yield _failed(f"installed by {name}", row, f"{row.project} to be installed", "none")
        return
    try:
        _, results = check_installed(installed, site, folder)
    except FactoryError as error:
        yield _failed("published wheel", row, "to be readable", str(error))
        return
    for result in results:
        yield result.model_copy(update={"gate": f"installed by {name}"}) if result.gate == "installed" else result


def _failed(step: str, row: WheelRow, expected: str, found: str) -> GateResult:
    shown = " ".join(found.split())[:500]
    return GateResult.from_findings(step, [Finding(file=row.filename, expected=expected, found=shown, remedy=_REMEDY)])
