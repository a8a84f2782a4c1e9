"""Costs of compiles: measurements precede predictions, and no damage in a ledger prevents an estimate."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wheelfactory.kernels.compiler.costs import (
    EMPTY_COST,
    SEED_COSTS,
    Cost,
    Ledger,
    Measurement,
    Shard,
    cut_shards,
    ordinary_cost,
    parse_kernel_kind,
    predict_cost,
    seed_cost,
    shard_costs,
)

CLANG, OTHER = "sha256 of a compiler", "sha256 of another compiler"
ONE, OTHER_ARCH, HOST_CODE, WHOLE = ("gfx942",), ("gfx90a",), ("host",), ("gfx90a", "gfx942", "host")
FWD, BWD, UNKNOWN = "fmha_fwd_d64_fp16_batch_b128", "fmha_bwd_d128_bf16_group_b16", "fmha_fwd_pagedkv_d128_fp16_b64"
COMBINE = "fmha_fwd_splitkv_combine_d64_fp8_b32_ps"
NOTHING = Ledger()


def measured(
    source: str,
    cpu_s: float = 50,
    peak_mib: int = 900,
    size: int = 9000,
    *,
    targets: tuple[str, ...] = ONE,
    compiler: str = CLANG,
) -> Measurement:
    """A compile, by default for one arch by `CLANG`."""
    return Measurement(source, targets, compiler, cpu_s, peak_mib, size)


def times(source: str, cpu: float = 1.0, memory: float = 1.0, size: float = 1.0) -> Measurement:
    """A compile for one arch; the arguments are factors of the seed table's prediction."""
    seed = seed_cost(source, ONE)
    return measured(source, seed.cpu_s * cpu, round(seed.peak_mib * memory), round(seed.size * size))


KINDS: dict[str, tuple[str, int | None]] = {
    "fmha_fwd_splitkv_combine_d128_fp8_batch_b32_unused_npad": ("fwd_splitkv_combine", 128),
    "fmha_fwd_d192x128_bf16": ("fwd", 192),
    "fmha_fwd_splitkv_api": ("fwd_splitkv_api", None),
    "fmha_bwd_api_gfx9": ("bwd_api", None),
    "flash_api": ("", None),
    f"fmha_fwd_d{'9' * 5000}_fp16": ("", None),
}


def test_kind_and_head_dim_are_parsed_from_a_name() -> None:
    assert {source: parse_kernel_kind(source) for source in KINDS} == KINDS


def test_without_measurements_the_seed_table_is_all() -> None:
    assert predict_cost(NOTHING, FWD, ONE, CLANG) == SEED_COSTS["device"]["fwd"][64]
    assert predict_cost(NOTHING, FWD, HOST_CODE, CLANG) == SEED_COSTS["host"]["fwd"][64]


def test_the_targets_of_an_ordinary_compile_are_compiled_in_turn() -> None:
    one, two, three = (ordinary_cost(BWD, archs) for archs in (1, 2, 3))
    assert three.cpu_s - two.cpu_s == pytest.approx(two.cpu_s - one.cpu_s)
    assert two.cpu_s - one.cpu_s > seed_cost(BWD, ONE).cpu_s
    assert one.peak_mib == two.peak_mib == three.peak_mib > seed_cost(BWD, ONE).peak_mib
    assert ordinary_cost(BWD, 2) == seed_cost(BWD, WHOLE)


def worst(wanted: Callable[[str], bool]) -> tuple[Cost, ...]:
    """The most expensive device code and host code of the kinds that are wanted, amount by amount."""
    found = []
    for by_kind in SEED_COSTS.values():
        known = [cost for kind, costs in by_kind.items() if wanted(kind) for cost in costs.values()]
        found.append(Cost(max(c.cpu_s for c in known), max(c.peak_mib for c in known), max(c.size for c in known)))
    return tuple(found)


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("fmha_fwd_d192_fp16_batch", lambda kind: kind == "fwd"),
        ("fmha_bwd_convert_dq_d96_fp16", lambda kind: kind == "bwd_convert_dq"),
        (UNKNOWN, lambda kind: not kind.endswith("_api")),
        ("fmha_fwd_pagedkv_api", lambda kind: True),
        ("a name of another form", lambda kind: True),
    ],
)
def test_what_was_never_measured_costs_as_much_as_the_most_expensive_of_its_kind(
    source: str, wanted: Callable[[str], bool]
) -> None:
    assert (seed_cost(source, ONE), seed_cost(source, HOST_CODE)) == worst(wanted)


def test_a_measurement_of_the_same_source_and_compiler_is_the_prediction_for_every_arch() -> None:
    ledger = Ledger((measured(FWD, 60, 2000, 5), measured(FWD, 40, 1000, 7), measured(FWD, 50, 1500, 9)))
    for targets in (ONE, OTHER_ARCH):
        assert predict_cost(ledger, FWD, targets, CLANG) == Cost(50, 2000, 7), "medians, and the most memory of all"


def test_the_cost_of_device_code_does_not_predict_host_code_or_whole_objects() -> None:
    ledger = Ledger((times(FWD),))
    assert predict_cost(ledger, FWD, HOST_CODE, CLANG) == seed_cost(FWD, HOST_CODE)
    assert predict_cost(ledger, FWD, WHOLE, CLANG) == seed_cost(FWD, WHOLE)
    host_only = Ledger((measured(FWD, 7, targets=HOST_CODE),))
    assert predict_cost(host_only, FWD, HOST_CODE, CLANG).cpu_s == 7
    assert Cost(7, 900, 9000) not in (predict_cost(host_only, FWD, targets, CLANG) for targets in (ONE, WHOLE))


def test_other_sources_cost_the_seed_times_the_compilers_ratio() -> None:
    ledger = Ledger((times(FWD, 1, 2, 3), times(BWD, 4, 3, 6), times(COMBINE, 2, 1, 4)))
    for targets in (ONE, HOST_CODE, WHOLE):
        seed, cost = (
            seed_cost("fmha_bwd_d32_x", targets),
            predict_cost(ledger, "fmha_bwd_d32_x", targets, CLANG),
        )
        assert cost.cpu_s == pytest.approx(2 * seed.cpu_s, rel=1e-3), "the median"
        assert cost.peak_mib == pytest.approx(3 * seed.peak_mib, rel=1e-2), "the largest"
        assert cost.size == pytest.approx(4 * seed.size, rel=1e-3), "the median"


def test_light_compiles_do_not_lower_the_memory_of_heavy_ones() -> None:
    ledger = Ledger((times(FWD, 0.5, 0.5),))
    assert predict_cost(ledger, BWD, ONE, CLANG).peak_mib == seed_cost(BWD, ONE).peak_mib
    assert predict_cost(ledger, BWD, ONE, CLANG).cpu_s == pytest.approx(seed_cost(BWD, ONE).cpu_s / 2)


def test_shards_are_cut_by_the_compiler_that_the_ledger_knows_best() -> None:
    ledger = Ledger((measured(FWD, 1), measured(FWD, 7, compiler=OTHER), measured(FWD, 7, compiler=OTHER)))
    assert shard_costs(ledger, [FWD], ONE) == {FWD: 7}
    assert shard_costs(NOTHING, [FWD], ONE) == {FWD: seed_cost(FWD, ONE).cpu_s}


def test_an_arch_without_code_costs_an_empty_compile_whatever_was_measured() -> None:
    ledger = Ledger((measured(FWD, 7),))
    guards = {FWD: "defined(__gfx12__)"}
    assert predict_cost(ledger, FWD, ONE, CLANG, guards) == EMPTY_COST
    assert predict_cost(ledger, FWD, ("gfx1201",), CLANG, guards).cpu_s == 7
    assert shard_costs(ledger, [FWD], ONE, guards) == {FWD: EMPTY_COST.cpu_s}
    assert Ledger(tuple(reversed(ledger.measurements[:2]))).main_compiler == min(CLANG, OTHER), "not by who came first"


def ledger_of(lines: Iterable[str]) -> Ledger:
    with tempfile.NamedTemporaryFile("w", encoding="utf-8") as file:
        file.writelines(line.rstrip("\n") + "\n" for line in lines)
        file.flush()
        return Ledger.read(Path(file.name))


LINE = measured(FWD).to_line()
FOREIGN: list[dict[str, object]] = [
    {"targets": []},
    {"targets": "gfx942"},
    {"cpu_s": 0},
    {"cpu_s": float("nan")},
    {"peak_mib": -1},
    {"size": 10**400},
    {"sha256": "a line of a journal"},
]
"""What makes a measurement something else."""


def test_truncated_and_foreign_lines_are_ignored(tmp_path: Path) -> None:
    texts = ("", "\n", "null", "[]", "7", "{}", "[" * 100_000, "\x00", LINE[:-9], LINE[:-2] + LINE)
    bad = [*texts, *(json.dumps({**asdict(measured(FWD)), **change}) for change in FOREIGN)]
    assert [line for line in bad if ledger_of([LINE, line, LINE]) != Ledger((measured(FWD),) * 2)] == []
    (tmp_path / "ledger.jsonl").write_bytes(LINE.encode() + b"\xff\xfe\n" + LINE.encode())
    assert Ledger.read(tmp_path / "ledger.jsonl") == Ledger((measured(FWD),) * 2), "not UTF-8"


COSTS = st.dictionaries(st.text(max_size=4), st.floats(min_value=0.01, max_value=1000), max_size=40)
COUNTS = st.integers(1, 12)


@pytest.mark.parametrize(
    "text", ["", "1", "0/6", "7/6", "-1/6", "1/0", "1/6/6", " 1/6", "1/6\n", "1 / 6", "a/b", "\u0661/6", "1/1000000"]
)
def test_an_invalid_shard_is_refused(text: str) -> None:
    assert str(Shard.parse("2/6")) == "2/6"
    with pytest.raises(ValueError, match="shard"):
        Shard.parse(text)


@given(COSTS, COUNTS)
def test_each_name_is_in_exactly_one_shard(costs: dict[str, float], count: int) -> None:
    shards = cut_shards(costs, count)
    assert len(shards) == count
    assert sorted(name for shard in shards for name in shard) == sorted(costs)


@given(COSTS, COUNTS, st.randoms(use_true_random=False))
def test_the_order_of_the_sources_does_not_matter(costs: dict[str, float], count: int, chance: random.Random) -> None:
    names = list(costs)
    chance.shuffle(names)
    assert cut_shards({name: costs[name] for name in names}, count) == cut_shards(costs, count)


@given(COSTS, COUNTS)
def test_no_two_shards_differ_by_more_than_one_compile(costs: dict[str, float], count: int) -> None:
    loads = [sum(costs[name] for name in shard) for shard in cut_shards(costs, count)]
    assert max(loads) - min(loads) <= max(costs.values(), default=0) + 1e-6


def test_the_longest_goes_first_and_each_to_the_cheapest_shard() -> None:
    costs = {"a": 1.0, "b": 5.0, "c": 3.0, "d": 4.0}
    assert cut_shards(costs, 1) == (("b", "d", "c", "a"),)
    assert cut_shards(costs, 2) == (("b", "a"), ("d", "c"))
