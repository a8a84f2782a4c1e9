"""The source list: exactly the sources that setup.py would compile, found without running setup.py."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

import pytest

from dispatch_release import BINDING, FILTER, make_dispatch_release, write_dispatch_release
from wheelfactory.build.sources import fetch_source, unpack_source
from wheelfactory.core.errors import InputError, SourceError
from wheelfactory.core.files import MATRIX
from wheelfactory.core.process import capture
from wheelfactory.kernels import source_list
from wheelfactory.kernels.generator_commands import FilteredCommand, parse_generator_commands
from wheelfactory.kernels.kernel_set import group_kernel_sets
from wheelfactory.kernels.source_list import (
    SourceList,
    list_planned_sources,
    list_sources,
    write_source_list,
)
from wheelfactory.matrix.expand import expand
from wheelfactory.matrix.facts import FlashAttn
from wheelfactory.matrix.load import load_matrix

GENERATE = """\
import sys
from pathlib import Path

arguments = dict(zip(sys.argv[1::2], sys.argv[2::2]))
for dim in arguments["--optdim"].split(","):
    Path(arguments["--output_dir"], f"fmha_{arguments['-d']}_d{dim}.cpp").write_text("kernel")
Path(arguments["--output_dir"], "notes.txt").touch()
"""
SETUP = """\
import os, subprocess, sys
import torch

ck_dir = "csrc/ck"
if not os.path.exists("./build"):
    os.makedirs("build")
optdim = os.getenv("OPT_DIM", "32,64")
subprocess.run(["git", "submodule", "update"], check=True)
for_all = "-d"
subprocess.run([sys.executable, f"{ck_dir}/generate.py", for_all, "fwd", "--output_dir", "build", "--optdim", optdim])
os.system(f"{sys.executable} {ck_dir}/generate.py -d bwd --output_dir build --optdim 64")
"""
MADE = ("fmha_bwd_d64", "fmha_fwd_d32", "fmha_fwd_d64")


def release_of(cache: Path, setup: str = SETUP, generate: str = GENERATE) -> FlashAttn:
    """A release whose sdist is in the cache already."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as tar:
        for name, text in (("setup.py", setup), ("csrc/ck/generate.py", generate)):
            member = tarfile.TarInfo(f"flash_attn-9/{name}")
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))
    sha256 = hashlib.sha256(data.getvalue()).hexdigest()
    path = cache / "sources" / sha256[:16] / "flash_attn-9.tar.gz"
    path.parent.mkdir(parents=True)
    path.write_bytes(data.getvalue())
    sdist = {"file": path.name, "sha256": sha256}
    return FlashAttn.model_validate({"sdist": sdist, "python": ">=3.9", "source": "made by this test"})


def test_the_sources_are_those_that_the_generator_writes(tmp_path: Path) -> None:
    found = list_sources("9", release_of(tmp_path), tmp_path, os.environ)
    assert found.sources == MADE
    assert found.total_bytes == len(SETUP) + len(GENERATE) + 3 * len("kernel")


def test_the_guards_of_the_sources_are_listed_and_a_list_is_made_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guarded = "#if !defined(__HIP_DEVICE_COMPILE__) || (defined(__gfx12__))\\nint x;\\n#endif\\n"
    generate = GENERATE.replace('"kernel"', f'"{guarded}"')
    assert generate != GENERATE
    release = release_of(tmp_path, generate=generate)
    made = list_sources("9", release, tmp_path, os.environ)
    assert made.guards == dict.fromkeys(MADE, "defined(__gfx12__)")
    monkeypatch.setattr(source_list, "fetch_source", None)
    assert list_sources("9", release, tmp_path, os.environ) == made, "of the cache"


def test_a_damaged_cached_list_is_made_again(tmp_path: Path) -> None:
    release = release_of(tmp_path)
    write_source_list(SourceList(("old",), 1, ""), release.source_pin, tmp_path)
    assert list_sources("9", release, tmp_path, os.environ).sources == ("old",)
    (path,) = (tmp_path / "source-lists").iterdir()
    written = json.loads(path.read_text())
    others = json.dumps({**written, "format": 0}), json.dumps({**written, "sources": []})
    for kept in ("", "[]", '{"format": 3', *others):
        path.write_text(kept)
        assert list_sources("9", release, tmp_path, os.environ).sources == MADE


def test_planned_sources_do_not_depend_on_the_users_variables(tmp_path: Path) -> None:
    environ = {**os.environ, "OPT_DIM": "32"}
    planned = list_planned_sources("9", release_of(tmp_path), tmp_path, environ, ())
    assert planned
    assert planned.sources == MADE


def test_a_release_without_a_list_has_no_planned_sources(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    git = {"repository": (tmp_path / "absent").as_uri(), "tag": "v9"}
    release = FlashAttn.model_validate({"git": git, "python": ">=3.9", "source": "made by this test"})
    assert list_planned_sources("9", release, tmp_path, os.environ, ()) is None
    assert "cannot list the kernel sources" in caplog.text


def test_a_generator_that_is_told_the_archs_is_run_for_those_of_the_build(tmp_path: Path) -> None:
    # as in flash-attn after 2025-12
    setup = """\
archs = os.getenv("GPU_ARCHS", "native").split(";")
targets = ",".join(archs)
for direction in ["fwd", "bwd"]:
    subprocess.run([sys.executable, "csrc/ck/generate.py", direction, targets])
"""
    generate = """\
import sys
for arch in sys.argv[2].split(","):
    open(f"build/fmha_{sys.argv[1]}_{arch}.cpp", "w").close()
"""
    release = release_of(tmp_path, setup, generate)
    for archs in (("gfx942",), ("gfx942", "gfx1100")):
        found = list_sources("9", release, tmp_path, os.environ, archs)
        assert found.sources == tuple(sorted(f"fmha_{d}_{arch}" for d in ("fwd", "bwd") for arch in archs))
        assert list_sources("9", release, tmp_path, os.environ, archs) == found
    of_all = with_archs(with_digest(release, found.digest), "gfx942", "gfx1100")
    assert list_sources("9", of_all, tmp_path, os.environ, ("gfx942",)).archs == ("gfx942",)
    with pytest.raises(InputError, match="wrong kernel-sources"):
        list_sources("9", with_digest(of_all, WRONG), tmp_path, os.environ)


@pytest.mark.parametrize(
    ("generate", "error"),
    [("raise SystemExit('no such dim')", "no such dim"), ("", "no kernel sources generated by flash-attn: 9")],
)
def test_a_generator_that_fails_or_makes_nothing_is_an_error(tmp_path: Path, generate: str, error: str) -> None:
    release = release_of(tmp_path, generate=generate)
    with pytest.raises(SourceError, match=error):
        list_sources("9", release, tmp_path, os.environ)
    assert not (tmp_path / "source-lists").exists()


WRONG = "0" * 64


def with_digest(release: FlashAttn, digest: str | None) -> FlashAttn:
    return release.model_copy(update={"kernel_sources": digest})


def with_archs(release: FlashAttn, *archs: str) -> FlashAttn:
    ck = {"archs": archs, "wheel-size": "1 MB to 2 MB", "source": "made by this test"}
    return FlashAttn.model_validate({**release.model_dump(by_alias=True), "ck": ck})


def test_a_wrong_digest_in_the_matrix_is_refused_with_both(tmp_path: Path) -> None:
    release = release_of(tmp_path)
    found = list_sources("9", release, tmp_path, os.environ).digest
    wrong = with_digest(release, WRONG)
    for ask in (list_sources, list_planned_sources):
        with pytest.raises(InputError, match=f"flash-attn 9: expected {WRONG}, found {found}"):
            ask("9", wrong, tmp_path, os.environ, ())
    write_source_list(SourceList(("old",), 1, WRONG), release.source_pin, tmp_path)
    assert list_sources("9", with_digest(release, found), tmp_path, os.environ).sources == MADE, (
        "and not the cached one"
    )


# filters

MakeRelease: TypeAlias = Callable[[Path, Path, str], Path]


def listed(
    folder: Path, binding: str = BINDING, pattern: str = FILTER, make: MakeRelease = make_dispatch_release
) -> SourceList:
    """The sources of the small release with this binding and filter."""
    matrix = make(folder, folder, binding)
    matrix.write_text(matrix.read_text().replace(FILTER, pattern))
    return list_sources("2.8.3", load_matrix(matrix).flash_attn["2.8.3"], folder, os.environ)


def test_proved_filters_leave_sources_out_and_are_part_of_the_list(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    for _ in range(2):  # generated, then cached
        caplog.clear()
        found = listed(tmp_path)
        called = [f"fmha_fwd_d64_fp16_nlogits_{mask}_lse" for mask in ("mask", "nmask")]
        assert (list(found.sources), len(found.left_out)) == (["fmha_fwd_api", *called], 6)
        command = ("csrc/ck/generate.py", "-d", "fwd", "--output_dir", "build")
        assert found.filtered == (FilteredCommand(command, FILTER),)
        assert "flash-attn 2.8.3: left out 6 kernel sources that no call can reach" in caplog.text


@pytest.mark.parametrize(
    ("binding", "pattern", "make"),
    [
        (BINDING.replace("has_lse = true", "has_lse = is_causal"), FILTER, make_dispatch_release),
        (BINDING, "*_nlogits_mask_*", make_dispatch_release),
        (BINDING, FILTER, write_dispatch_release),
    ],
    ids=["other bindings", "another filter", "no proof"],
)
def test_filters_without_a_proof_for_these_sources_leave_nothing_out_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, binding: str, pattern: str, make: MakeRelease
) -> None:
    for _ in range(2):
        caplog.clear()
        found = listed(tmp_path, binding, pattern, make)
        assert (len(found.sources), found.filtered, found.left_out) == (9, (), ())
        assert "flash-attn 2.8.3: compiling all kernels, no proof for the filters" in caplog.text
    assert len(listed(tmp_path).left_out) == 6


@pytest.fixture(scope="module")
def real_lists(cache: Path) -> Mapping[str, SourceList]:
    """The source lists of the real sdists, whatever digest the matrix states. In CI the cache had none before."""
    releases = load_matrix(MATRIX).flash_attn
    return {
        version: list_sources(version, with_digest(releases[version], None), cache, os.environ)
        for version in ("2.8.3.post2", "2.8.3", "2.7.4.post1")
    }


@pytest.mark.slow
def test_the_real_sdists_of_2_8_3_and_2_8_3_post2_make_one_kernel_set(real_lists: Mapping[str, SourceList]) -> None:
    digests = {version: listed.digest for version, listed in real_lists.items()}
    assert digests["2.8.3"] == digests["2.8.3.post2"] != digests["2.7.4.post1"]
    assert real_lists["2.8.3"].sources == real_lists["2.8.3.post2"].sources

    matrix = load_matrix(MATRIX)
    assert {version: matrix.flash_attn[version].kernel_sources for version in digests} == digests
    sets = group_kernel_sets(matrix, expand(matrix).cells)
    releases = {kernel_set.releases for kernel_set in sets}
    assert releases == {("2.8.3.post2", "2.8.3"), ("2.7.4.post1",), ("2.6.3",), ("2.8.4+git4a948e9",)}


@pytest.mark.slow
@pytest.mark.parametrize(("version", "count", "called"), [("2.8.3", 2775, 2199), ("2.7.4.post1", 2199, 2007)])
def test_the_real_releases(
    version: str, count: int, called: int, real_lists: Mapping[str, SourceList], cache: Path, tmp_path: Path
) -> None:
    """Against upstream's own list, which is another path through its generator, with the filters that are proved."""
    release, found = load_matrix(MATRIX).flash_attn[version], real_lists[version]

    assert (len(found.sources), len(found.left_out)) == (called, count - called)
    tree = unpack_source(fetch_source(version, release, cache / "sources", os.environ), tmp_path / "tree")
    listed: list[str] = []
    for command in parse_generator_commands((tree / "setup.py").read_text(), version, ()):
        words = ["--list_blobs" if word == "--output_dir" else word for word in command]
        patterns = [item.filter for item in release.filters if item.direction in command]
        options = ["--filter", *patterns] if patterns else []
        capture(["list" if word == "build" else word for word in [*words, *options]], cwd=tree)
        listed += (tree / "list").read_text().split()
    assert found.sources == tuple(sorted(Path(path).stem for path in listed))
