"""What an index has of torch for a ROCm: which files count, and every way in which asking can fail."""

from __future__ import annotations

import time

import pytest
from packaging.version import Version

from refresh.torch_index import PYTORCH, TorchIndex, parse_torch_releases
from scripts.refresh.torch_pages import TorchPages
from small_matrix import small_matrix
from wheelfactory.core.errors import FactoryError
from wheelfactory.matrix.facts import Rocm

GOOD = "torch-2.9.1+rocm6.4-cp312-cp312-manylinux_2_28_x86_64.whl"


@pytest.fixture
def rocm() -> Rocm:
    return small_matrix().rocm["6.4"]


def ask(pages: TorchPages, rocm: Rocm) -> dict[str, list[str]]:
    offer = TorchIndex(pages.url, {}).find_releases("6.4", rocm)
    return {str(version): sorted(pythons) for version, pythons in offer.items()}


def test_other_files_are_ignored() -> None:
    for name in (
        *(GOOD.replace("+rocm6.4", label) for label in ("+rocm6.4.1", "+rocm6.40", "", "+cu124")),
        *(GOOD.replace("2.9.1", version) for version in ("2.9.1rc2", "2.9.1.dev20251111", "9" * 5000)),
        *(GOOD.replace("manylinux_2_28_x86_64", tag) for tag in ("win_amd64", "linux_aarch64", "musllinux_1_2_x86_64")),
        *(GOOD.replace("cp312-cp312", tag) for tag in ("cp313-cp313t", "pp310-pypy310_pp73", "cp3012-cp3012")),
        GOOD.replace("torch-", "torchvision-"),
        GOOD.replace(".whl", ".whl.metadata"),
        GOOD.replace("cp312-", ".".join(["cp312"] * 9000) + "-"),
        f"../../{GOOD}",
        "torch-\u0968.\u096f.\u0967+rocm6.4-cp312-cp312-linux_x86_64.whl",
        "torch-2.9.1;rm -rf $HOME-cp312-cp312-linux_x86_64.whl",
    ):
        assert parse_torch_releases([name], "6.4") == {}
        assert parse_torch_releases([name, GOOD, name], "6.4") == {Version("2.9.1"): {"3.12"}}


def test_each_release_has_the_pythons_of_its_wheels_whatever_they_call_linux() -> None:
    names = [GOOD, GOOD.replace("cp312", "cp310"), GOOD.replace("2.9.1", "2.10.0"), GOOD.replace("2.9.1", "2.1.0")]
    two, ten, one = Version("2.9.1"), Version("2.10.0"), Version("2.1.0")
    assert parse_torch_releases(names, "6.4") == {two: {"3.12", "3.10"}, ten: {"3.12"}, one: {"3.12"}}
    for platform in ("linux_x86_64", "manylinux2014_x86_64", "manylinux1_x86_64.manylinux_2_5_x86_64"):
        assert parse_torch_releases([GOOD.replace("manylinux_2_28_x86_64", platform)], "6.4")


def test_a_page_is_read_as_pip_reads_it(pages: TorchPages, rocm: Rocm) -> None:
    """The name of a file is in its address, where `+` is written `%2B`; what was withdrawn does not count."""
    pages.have("6.4", "2.9.1", "3.12", "3.11")
    pages.have("6.4", "2.8.0", "3.12")
    pages.yanked = {name for name in pages.files["6.4"] if "2.8.0" in name}
    pages.bodies["6.4"] = pages.page("6.4").replace(b">torch-", b">to read: torch-")
    assert b"%2Brocm" in pages.bodies["6.4"]
    assert ask(pages, rocm) == {"2.9.1": ["3.11", "3.12"]}
    assert pages.asked == ["/whl/rocm6.4/torch/"]


def test_a_page_of_5000_links_takes_as_long_for_a_link_as_one_of_500(pages: TorchPages, rocm: Rocm) -> None:
    """In CPU seconds; a reader that looks back at all links before would take ten times as long for each."""

    def seconds(links: int) -> float:
        for patch in range(links):
            pages.have("6.4", f"2.9.{patch}", "3.12")
        started = time.process_time()
        assert len(ask(pages, rocm)) == links
        return time.process_time() - started

    assert seconds(500) * 40 > seconds(5000)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("files", {}),  # missing
        *(("status", {"6.4": status}) for status in (403, 500)),
        ("kind", "image/png"),
        ("bodies", {"6.4": b"<html>Log in to this network</html>"}),
        ("bodies", {"6.4": b'<a href="http://[/torch-2.9.1%2Brocm6.4-cp312-cp312-linux_x86_64.whl">torch</a>'}),
        ("bodies", {"6.4": b"<div>" * 20_000}),
        ("bodies", {"6.4": b"<![garbage["}),
        ("bodies", {"6.4": b'<meta name="pypi:repository-version" content="9.0">'}),
        ("bodies", {"6.4": b'<a href="/whl/rocm6.4/torch-2.9.1%2Brocm6.4-cp312-cp'}),
    ],
)
def test_what_is_no_index_is_an_error_and_not_an_empty_one(
    pages: TorchPages, rocm: Rocm, setting: str, value: object
) -> None:
    pages.have("6.4", "2.9.1", "3.12")
    setattr(pages, setting, value)
    with pytest.raises(FactoryError, match=rf"^[^:]*index[^:]*: ROCm 6\.4, {pages.url}/rocm6\.4"):
        ask(pages, rocm)


def test_an_invalid_url_is_an_error(rocm: Rocm) -> None:
    for url in ("", "pytorch", "ftp://127.0.0.1", "http://", "http://[", "http://127.0.0.1:9"):
        with pytest.raises(FactoryError, match=r"cannot read an index: ROCm 6\.4, "):
            TorchIndex(url, {}).find_releases("6.4", rocm)


def test_a_mirror_replaces_only_pytorchs_index(rocm: Rocm) -> None:
    index = TorchIndex("http://mirror/whl/", {})
    assert index.address(rocm) == "http://mirror/whl/rocm6.4"
    for other in ("https://example.org/whl/rocm6.4", f"{PYTORCH}-other/rocm6.4"):
        assert index.address(rocm.model_copy(update={"index": other})) == other
    assert TorchIndex(PYTORCH, {}).address(rocm) == rocm.index
