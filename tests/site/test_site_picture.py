"""The picture of coverage: valid XML that says the same as the coverage, in text too."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest

from report_rows import rows_of
from small_matrix import small_matrix
from wheelfactory.core.checkout import MATRIX
from wheelfactory.matrix.expand import Excluded, expand
from wheelfactory.matrix.load import load_matrix
from wheelfactory.site.coverage import Coverage, cover
from wheelfactory.site.picture import draw

SVG = "{http://www.w3.org/2000/svg}"
TRITON = "fa2.8.3-rocm6.4-torch2.9.1-py3-triton"
CK = "fa2.8.3-rocm6.4-torch2.9.1-cp311-ck"
HOSTILE = '</title><script>alert("&amp;")</script>\x00\x1b ]]> \u202e'


@pytest.fixture
def coverage(tmp_path: Path) -> Coverage:
    rows = (*rows_of(tmp_path, [TRITON]), *rows_of(tmp_path, [CK], yanked="wrong numbers"))
    return cover(expand(small_matrix()), rows)


def read(drawn: str) -> Xml.Element:
    """The picture as an XML parser reads it."""
    return Xml.fromstring(drawn)  # noqa: S314 -- made here, not taken from anyone


def squares(coverage: Coverage) -> dict[str, tuple[str, str, str]]:
    """Name of each square -> its class, what is written in it, and the rest of its title."""
    found = {}
    for group in read(draw(coverage)).iter(f"{SVG}g"):
        title = group.find(f"{SVG}title")
        if title is not None and title.text:
            name, _, told = title.text.partition(": ")
            box, text = group.find(f"{SVG}rect"), group.find(f"{SVG}text")
            assert box is not None and text is not None and text.text
            found[name] = (box.attrib["class"], text.text, told)
    return found


def test_each_square_says_how_many_are_published_of_how_many(coverage: Coverage) -> None:
    found = squares(coverage)
    assert len(found) == 8  # two backends, two ROCm, two torch
    assert found["ROCm 6.4, torch 2.9.1, triton"][:2] == ("full", "1/1")
    assert found["ROCm 6.4, torch 2.9.1, ck"][:2] == ("yanked", "0/2!")
    assert found["ROCm 6.2, torch 2.5.1, ck"][:2] == ("none", "0/2")


def test_a_square_in_part_published_is_told_apart(tmp_path: Path) -> None:
    found = squares(cover(expand(small_matrix()), rows_of(tmp_path, [CK])))
    kind, text, told = found["ROCm 6.4, torch 2.9.1, ck"]
    assert (kind, text) == ("part", "1/2")
    assert told.startswith("1 of 2 published, 1 missing; excluded: ")


def test_an_excluded_square_has_the_reason_as_its_title(coverage: Coverage) -> None:
    kind, text, told = squares(coverage)["ROCm 6.4, torch 2.5.1, ck"]
    assert (kind, text) == ("excluded", "\N{EN DASH}")
    assert told.startswith("excluded: torch 2.5.1 is not on the ROCm 6.4 index; it is on 6.2")


def test_every_square_of_the_real_matrix_adds_up_to_its_coverage() -> None:
    coverage = cover(expand(load_matrix(MATRIX)), ())
    written = [text for _, text, _ in squares(coverage).values() if "/" in text]
    assert sum(int(text.partition("/")[2]) for text in written) == coverage.tally.wanted


def test_versions_are_ordered_as_versions_the_newest_first() -> None:
    root = read(draw(cover(expand(load_matrix(MATRIX)), ())))
    texts = [text.text for text in root.iter(f"{SVG}text")]
    first = texts.index("ROCm")
    assert texts[first + 1 : first + 4] == ["7.14", "7.2", "7.1"]
    assert [text for text in texts if text and text.startswith("torch 2.1")][:2] == ["torch 2.14.1", "torch 2.13.0"]


def test_squares_do_not_overlap_and_stay_within_the_picture() -> None:
    root = read(draw(cover(expand(load_matrix(MATRIX)), ())))
    wide, high = float(root.attrib["width"]), float(root.attrib["height"])
    places: set[tuple[float, float]] = set()
    for panel in root.findall(f"{SVG}g"):
        top = float(panel.attrib["transform"].rstrip(")").split()[1])
        for box in panel.iter(f"{SVG}rect"):
            x, y = float(box.attrib["x"]), top + float(box.attrib["y"])
            width, height = float(box.attrib["width"]), float(box.attrib["height"])
            assert not any(abs(x - left) < width and abs(y - above) < height for left, above in places)
            assert x + width < wide
            assert y + height < high
            places.add((x, y))
    assert len(places) == 2 * 9 * 10


def test_it_is_described_for_those_who_do_not_see_it(coverage: Coverage) -> None:
    root = read(draw(coverage))
    assert root.attrib["role"] == "img"
    named = {element.attrib.get("id"): element.text for element in root}
    title, told = (named[name] for name in root.attrib["aria-labelledby"].split())
    assert title == "flash-attn wheels: 1 of 5 published"
    assert told and told.startswith("3 missing, 1 yanked, 26 combinations of versions excluded")


def test_it_has_colours_for_dark_and_light(coverage: Coverage) -> None:
    style = read(draw(coverage)).findtext(f"{SVG}style") or ""
    light, dark = style.split("@media (prefers-color-scheme: dark)")
    for kind in ("text", ".ground", ".full", ".part", ".none", ".yanked", ".excluded", ".quiet"):
        assert f"{kind} {{ fill:" in light
        assert f"{kind} {{ fill:" in dark


def test_any_reason_is_text(coverage: Coverage) -> None:
    item = Excluded(coverage.excluded[0].combination, HOSTILE)
    drawn = draw(Coverage(coverage.cells, (item,), ()))
    assert '</title><script>alert("&amp;")</script>?? ]]> ?' in "".join(read(drawn).itertext())
    assert not list(read(drawn).iter(f"{SVG}script"))


def test_the_same_coverage_gives_the_same_bytes_whatever_its_order(coverage: Coverage) -> None:
    again = Coverage(coverage.cells[::-1], coverage.excluded[::-1], ())
    assert draw(again) == draw(coverage)
