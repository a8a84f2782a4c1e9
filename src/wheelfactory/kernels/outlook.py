"""Kernel sets -> what each will take, from the sources of its release and what compiles cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from wheelfactory.build.clean_environ import clean_environ
from wheelfactory.core.errors import InputError, SourceError
from wheelfactory.kernels.census import Census, take_census
from wheelfactory.kernels.compiler.costs import Ledger
from wheelfactory.kernels.forecast import Forecast, Knowledge, Runners, make_forecast
from wheelfactory.kernels.kernel_set import KernelSet
from wheelfactory.matrix.facts import FlashAttn

Outlook: TypeAlias = "Forecast | str"
"""What a kernel set will take, or why that cannot be told."""


@dataclass(frozen=True)
class Wish:
    """How kernel sets are to be cut, and for which machines; the budget is that of a shard, in hours."""

    runners: Runners
    shards: int | None
    budget_h: float


def read_knowledge(given: Path | None, own: Path) -> Knowledge:
    """What to predict by and to cut by.

    A machine's own ledger is for its own predictions: another machine has another one and would cut other shards.
    """
    if given is None:
        return Knowledge(Ledger.read(own), Ledger())
    if not given.is_file():
        raise InputError("no such file", str(given), "name a ledger with --ledger FILE, or leave the option out")
    ledger = Ledger.read(given)
    return Knowledge(ledger, ledger)


def make_outlooks(
    sets: Sequence[KernelSet],
    knowledge: Knowledge,
    wish: Wish,
    *,
    releases: Mapping[str, FlashAttn],
    cache: Path,
    environ: Mapping[str, str],
) -> list[Outlook]:
    """The outlook of each set. Raises `InputError` if the budget of a shard is too small for one compile."""
    censuses = {
        version: _census(version, releases[version], cache, environ)
        for version in dict.fromkeys(s.flash_attn for s in sets)
    }
    known: dict[tuple[str, tuple[str, ...]], Outlook] = {}
    for kernel_set in sets:
        key = (kernel_set.flash_attn, kernel_set.archs)
        if key not in known:
            known[key] = _outlook(censuses[kernel_set.flash_attn], kernel_set.archs, knowledge, wish)
    return [known[kernel_set.flash_attn, kernel_set.archs] for kernel_set in sets]


def _census(version: str, release: FlashAttn, cache: Path, environ: Mapping[str, str]) -> Census | str:
    """The sources of a release, or why they cannot be had."""
    try:
        return take_census(version, release, cache, clean_environ(environ))
    except SourceError as error:
        return "; ".join(filter(None, str(error).splitlines()))


def _outlook(census: Census | str, archs: tuple[str, ...], knowledge: Knowledge, wish: Wish) -> Outlook:
    if isinstance(census, str):
        return census
    budget_s = wish.budget_h * 3600
    try:
        return make_forecast(
            census.sources, census.bytes, archs, knowledge, wish.runners, shards=wish.shards, budget_s=budget_s
        )
    except ValueError as error:
        raise InputError(
            "no number of shards is enough for", f"--budget {wish.budget_h:g}: {error}", "give a shard more hours"
        ) from None
