"""`index --dest` generates a site from a manifest, in one folder that links to the wheels."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from release_factory import content_of, flash_attn_wheel, make_release, path_of, reachable, stub_wheel
from wheelfactory.cli import main
from wheelfactory.core.errors import BAD_INPUT, DONE
from wheelfactory.release.manifest import read_manifest

CELL = "fa2.8.3-rocm7.2-torch2.13.0-py3-triton"


@pytest.fixture(scope="module")
def read_only_release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release directory with one wheel of a cell and one dependency."""
    folder = tmp_path_factory.mktemp("made")
    wheels = [flash_attn_wheel(folder / "made", CELL), stub_wheel(folder / "made", "einops", "0.8.2")]
    make_release(folder / "a release", wheels)
    return folder / "a release"


@pytest.fixture(scope="module")
def read_only_site(read_only_release: Path) -> Path:
    """The site of that release."""
    folder = read_only_release.parent / "site"
    assert main(["index", str(read_only_release), "--dest", str(folder), "--site", "https://example.org/"]) == DONE
    return folder


@pytest.fixture
def release(read_only_release: Path, tmp_path: Path) -> Path:
    """A copy of that release, which a test can change."""
    return shutil.copytree(read_only_release, tmp_path / "a release")


@pytest.fixture
def site(release: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """The site of that release."""
    folder = tmp_path / "site"
    assert main(["index", str(release), "--dest", str(folder), "--site", "https://example.org/"]) == DONE
    assert str(folder) in capsys.readouterr().out
    return folder


def test_the_manifest_gains_only_the_addresses_which_the_index_has_too(
    read_only_site: Path, read_only_release: Path
) -> None:
    site, release = read_only_site, read_only_release
    files = {path_of(link.url.partition("#")[0]) for link in reachable(site / "simple" / "index.html")}
    assert files == {release / "wheels" / row.filename for row in read_manifest(release)}
    rows = read_manifest(site)
    assert [row.model_copy(update={"url": None}) for row in rows] == list(read_manifest(release))
    assert [path_of(str(row.url)) for row in rows] == [release / "wheels" / row.filename for row in rows]


def test_it_has_lists_search_page_and_doctor_which_say_what_they_are(read_only_site: Path) -> None:
    for name in ("packages.md", "packages.html"):
        listed = (read_only_site / name).read_text()
        assert "--index-url https://example.org/simple/rocm72/torch2.13/triton/" in listed
    assert "flash_attn-2.8.3+rocm72torch2.13triton-1-py3-none-any.whl</a> for " in listed
    root, index, files = (
        (read_only_site / name / "index.html").read_text()
        for name in ("simple", "simple/rocm72/torch2.13/triton", "simple/rocm72/torch2.13/triton/flash-attn")
    )
    assert "Package indexes of flash-attn wheels for AMD GPUs" in root
    assert '<a href="../index.html">Find the wheel for your GPU</a>' in root
    assert "Package index of flash-attn wheels for ROCm 7.2, torch 2.13, backend triton" in index
    for page in (root, index, files, listed):
        assert "flash-attn: BSD-3-Clause, https://github.com/Dao-AILab/flash-attention. Newest wheel: 20" in page
    assert index.count("<a ") == len({"flash-attn", "einops"}), "an index has no link but those of its projects"
    assert "search/data.js" in (read_only_site / "index.html").read_text()
    assert CELL.partition("-")[0].removeprefix("fa") in (read_only_site / "search/data.js").read_text()
    assert "https://example.org/" in (read_only_site / "doctor.py").read_text()


def test_a_site_of_local_files_is_marked(release: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = content_of(release)
    assert main(["index", str(release), "--dest", str(tmp_path / "site")]) == DONE
    assert content_of(release) == before, "a release directory itself is left alone"
    assert f"warning: this site links to local files in {release / 'wheels'}" in capsys.readouterr().err


def test_the_doctor_of_a_release_directory_uses_the_given_address(release: Path) -> None:
    assert main(["index", str(release), "--site", "https://example.org/"]) == DONE
    assert 'SITE = "https://example.org/"' in (release / "doctor.py").read_text()


def test_it_links_to_its_documentation_only_where_it_has_one(site: Path, release: Path) -> None:
    without = (site / "search/data.js").read_text()
    (site / "docs").mkdir()
    (site / "docs/index.html").write_text("documentation")
    assert main(["index", str(release), "--dest", str(site), "--site", "https://example.org/"]) == DONE
    assert ('"docs":false' in without, '"docs":true' in (site / "search/data.js").read_text()) == (True, True)


def test_the_same_manifest_gives_the_same_site_without_leftovers(site: Path, release: Path) -> None:
    before = content_of(site)
    (site / "simple" / "rocm62").mkdir()
    (site / "simple" / "rocm62" / "index.html").write_text("of a release that is no more")
    assert main(["index", str(release), "--dest", str(site), "--site", "https://example.org/"]) == DONE
    assert content_of(site) == before


def test_the_list_alone_can_be_written_and_a_destination_that_is_a_file_is_refused_before_writing(
    release: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["index", str(release), "--packages", str(tmp_path / "packages.md")]) == DONE
    assert "flash_attn-2.8.3%2Brocm72torch2.13triton-1-py3-none-any.whl" in (tmp_path / "packages.md").read_text()
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".md"] == ["packages.md"]
    (tmp_path / "file").write_text("kept")
    assert main(["index", str(release), "--dest", str(tmp_path / "file")]) == BAD_INPUT
    assert "not a directory" in capsys.readouterr().err
    assert (tmp_path / "file").read_text() == "kept"
