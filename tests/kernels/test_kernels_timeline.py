"""The picture of a compile is true to what ran when, and every browser can read it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from random import Random
from xml.etree import ElementTree

import pytest

from wheelfactory.kernels.compiler.store import Finished
from wheelfactory.kernels.timeline import Bar, draw, kind_of, lay_out, memory_curve

SVG = "{http://www.w3.org/2000/svg}"


def compiled(
    start: float, end: float, source: str = "fmha_fwd_d64", *, peak: int = 100, cached: bool = False
) -> Finished:
    return Finished(source, ("gfx942",), "0" * 64, 1, end - start, peak, 1.7e9 + start, 1.7e9 + end, cached)


def many(count: int, seed: int = 1) -> list[Finished]:
    random = Random(seed)  # noqa: S311 # it must be repeatable
    starts = [random.uniform(0, 5000) for _ in range(count)]
    kinds = ("fmha_fwd", "fmha_bwd", "fmha_fwd_splitkv", "x")
    return [
        compiled(
            start,
            start + random.expovariate(1 / 60),
            f"{random.choice(kinds)}_d64_{number}",
            peak=random.randrange(2000),
        )
        for number, start in enumerate(starts)
    ]


def at_once(bars: Sequence[Bar]) -> int:
    """The most bars that run at one time, counted one by one."""
    return max(sum(other.start <= bar.start < other.end for other in bars) for bar in bars)


@pytest.mark.parametrize("seed", range(5))
def test_bars_of_a_lane_never_overlap_and_there_are_as_many_lanes_as_ran_at_once(seed: int) -> None:
    bars = lay_out(many(300, seed))

    for lane in {bar.lane for bar in bars}:
        mine = [bar for bar in bars if bar.lane == lane]
        assert all(one.end <= two.start for one, two in pairwise(mine))
    assert {bar.lane for bar in bars} == set(range(at_once(bars)))


def test_a_lane_is_used_again_by_the_next() -> None:
    bars = lay_out([compiled(0, 10), compiled(5, 15), compiled(10, 20), compiled(15, 25)])

    assert [bar.lane for bar in bars] == [0, 1, 0, 1]


def test_a_clock_that_was_set_back_gives_a_bar_of_no_width() -> None:
    (bar,) = lay_out([compiled(10, 4)])

    assert (bar.start, bar.end) == (0, 0)
    assert "<svg" in draw([compiled(10, 4)], "x")


def test_memory_is_the_sum_of_what_runs() -> None:
    bars = lay_out([compiled(0, 10, peak=100), compiled(5, 15, peak=30), compiled(10, 20, peak=7)])

    assert memory_curve(bars) == ((0.0, 0), (0.0, 100), (5.0, 130), (10.0, 37), (15.0, 7), (20.0, 0))


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("fmha_fwd_d128_bf16", "fwd"),
        ("fmha_fwd_splitkv_combine_d64", "fwd_splitkv"),
        ("fmha_fwd_appendkv_d64", "fwd_appendkv"),
        ("fmha_bwd_dq_dk_dv_d64", "bwd"),
        ("fmha_fwd_api", "api"),
        ("fmha_fwd_splitkv_api", "api"),
        ("mha_bwd", "other"),
    ],
)
def test_the_name_of_a_source_says_its_kind(source: str, kind: str) -> None:
    assert kind_of(source) == kind


def bars_of(picture: str) -> list[tuple[str, float, float, float]]:
    """Class, x, y and width of each bar drawn."""
    paths = ElementTree.fromstring(picture).iterfind(f".//{SVG}g/{SVG}path")  # noqa: S314 # made here
    found = []
    for path in paths:
        for x, y, width in re.findall(r"M([\d.]+) ([\d.]+)h([\d.]+)", path.attrib["d"]):
            found.append((path.attrib["class"], float(x), float(y), float(width)))
    return found


def texts(picture: str) -> str:
    return "\n".join(text.text or "" for text in ElementTree.fromstring(picture).iter(f"{SVG}text"))  # noqa: S314


def test_the_width_of_a_bar_is_its_time() -> None:
    bars = bars_of(draw([compiled(0, 100), compiled(0, 25), compiled(50, 100, "fmha_bwd_d64")], "x"))

    assert sorted((kind, x, width) for kind, x, _, width in bars) == [
        ("bwd", 624, 552),
        ("fwd", 72, 276),
        ("fwd", 72, 1104),
    ]


def test_every_compile_is_drawn_inside_of_the_picture() -> None:
    picture = draw(many(500), "x")

    root = ElementTree.fromstring(picture)  # noqa: S314 # made here
    bars = bars_of(picture)
    assert len(bars) == 500
    assert root.attrib["width"] == "1200"
    assert all(x >= 72 and x + width <= 1176.02 and 104 < y < float(root.attrib["height"]) for _, x, y, width in bars)


def test_the_head_says_what_it_was_and_what_it_cost() -> None:
    entries = [compiled(0, 3600, peak=2048), compiled(0, 7200, peak=512), compiled(0, 1, peak=4096, cached=True)]

    assert texts(draw(entries, "a set")).startswith(
        "a set\n3 objects, 3.0 CPU hours, 2 h 00 min from start to end, largest compile 2.0 GiB, 1 from a cache\n"
    )


def test_the_legend_names_the_kinds_that_there_are() -> None:
    found = texts(draw([compiled(0, 1), compiled(0, 1), compiled(0, 1, "fmha_bwd_d64")], "x"))

    assert "forward (2)" in found
    assert "backward (1)" in found
    assert "split" not in found
    assert "paler" not in found


@pytest.mark.parametrize(
    ("seconds", "marks"), [(5, "5 s"), (600, "10 min"), (3600, "60 min"), (36000, "10 h"), (1e7, "2640 h")]
)
def test_the_time_axis_speaks_in_fitting_units(seconds: float, marks: str) -> None:
    assert marks in texts(draw([compiled(0, seconds)], "x")).splitlines()


def test_text_is_escaped() -> None:
    title = '<script>&"\x00\x1b\ud800</script>'

    assert texts(draw([compiled(0, 1, "fmha<&")], title)).startswith('<script>&"???</script>\n')
    assert texts(draw([], title)) == '<script>&"???</script>: nothing was compiled'


def test_a_peak_of_a_moment_is_not_lost() -> None:
    entries = [*(compiled(number, number + 1, peak=10) for number in range(9000)), compiled(4000, 4000.01, peak=5120)]

    picture = draw(entries, "x")

    path = next(path for path in ElementTree.fromstring(picture).iter(f"{SVG}path") if path.get("class") == "memory")  # noqa: S314
    heights = [float(height) for height in re.findall(r"V([\d.]+)", path.attrib["d"])]
    assert max(heights) - min(heights) == pytest.approx(140, abs=0.2)
    assert "5.0 GiB" in texts(picture)


def test_a_large_set_makes_a_small_file() -> None:
    assert len(draw(many(7500), "x").encode()) < 1_500_000
