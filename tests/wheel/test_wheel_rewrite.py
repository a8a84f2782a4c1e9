"""Finishing a raw wheel: label, metadata, RECORD, and equal bytes for equal members."""

from __future__ import annotations

import stat
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from installer.sources import WheelFile
from packaging.version import Version

from wheel_factory import (
    CK,
    TRITON,
    build_record,
    make_wheel,
    metadata_text,
    read_zip,
    small_machine,
    tamper,
    write_zip,
)
from wheelfactory.core.cell import Cell
from wheelfactory.core.errors import InputError
from wheelfactory.core.label import Label
from wheelfactory.verify.gates import verify
from wheelfactory.verify.result import Status
from wheelfactory.wheel.corrections import ACTIVATION_MODULE
from wheelfactory.wheel.read import BUILD_RECORD_NAME, BuildRecord, Wheel
from wheelfactory.wheel.rewrite import (
    NEVER_REQUIRED,
    change_metadata,
    finish_wheel,
    label_version,
    protect_metadata,
    replace_tags,
)

MEMBERS = {
    "flash_attn/__init__.py": b"x = 1\n",
    "flash_attn/a name, with \"quotes\" and 'more'.py": b"",
    "flash_attn/\N{GREEK SMALL LETTER ALPHA}\N{HIGH VOLTAGE SIGN}.py": b"y = 2\n",
    "flash_attn/large.bin": bytes(3 << 20),
    "flash_attn/tool": b"#!/bin/sh\n",
    "notes.txt": b"at the top",
}


LINUX = "cp311-cp311-linux_x86_64"


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    return make_wheel(tmp_path / "raw", members=MEMBERS, metadata=metadata_text(requires=["torch", "einops"]))


def finish(raw: Path, folder: Path) -> Path:
    return finish_wheel(raw, build_record(TRITON), folder)


@pytest.mark.parametrize(
    ("version", "tags", "record", "expected"),
    [
        ("2.8.3", "py3-none-any", build_record(TRITON), "2.8.3+rocm72torch2.13triton-py3-none-any"),
        ("2.8.3", "py3-none-any", build_record(TRITON, build="2"), "2.8.3+rocm72torch2.13triton-2-py3-none-any"),
        ("2.8.3+rocm64torch2.9", LINUX, build_record(CK), f"2.8.3+rocm64torch2.9-{LINUX}"),
        ("2.8.3-1", LINUX, build_record(CK), f"2.8.3+rocm64torch2.9-1-{LINUX}"),
    ],
    ids=["triton", "a build number", "labelled by setup.py", "a build tag"],
)
def test_label_and_build_number_are_in_the_file_name_and_in_dist_info(
    tmp_path: Path, version: str, tags: str, record: BuildRecord, expected: str
) -> None:
    raw = make_wheel(tmp_path / "raw", version=version.partition("-")[0], tags=tags)
    raw = raw.rename(raw.with_name(f"flash_attn-{version}-{tags}.whl"))

    path = finish_wheel(raw, record, tmp_path / "dist")

    assert path == tmp_path / "dist" / f"flash_attn-{expected}.whl"
    wheel = Wheel.open(path)
    assert wheel.dist_info == f"flash_attn-{expected.partition('-')[0]}.dist-info"
    lines = wheel.read(f"{wheel.dist_info}/WHEEL").decode().splitlines()
    assert ("Build: 2" in lines) == (record.build == "2")
    assert lines[-1] == f"Tag: {tags}"


@pytest.mark.parametrize(("cell", "added"), [(TRITON, [ACTIVATION_MODULE]), (CK, [])], ids=["triton", "ck"])
def test_a_triton_wheel_gets_a_module_dist_info_comes_last_and_modes_are_plain(
    tmp_path: Path, cell: Cell, added: list[str]
) -> None:
    members = {**MEMBERS, "flash_attn/": b""}  # an entry of a folder is left out
    raw = make_wheel(tmp_path / "raw", members=members, executable=["flash_attn/tool"])

    with zipfile.ZipFile(finish_wheel(raw, build_record(cell), tmp_path / "dist")) as archive:
        modes = {info.filename: stat.filemode(info.external_attr >> 16) for info in archive.infolist()}

    stem = f"flash_attn-2.8.3+{Label.from_cell(cell)}.dist-info"
    last = [f"{stem}/{name}" for name in ("METADATA", "WHEEL", BUILD_RECORD_NAME, "RECORD")]
    assert [*modes] == [*sorted([*MEMBERS, *added]), *last]
    assert modes.pop("flash_attn/tool") == "-rwxr-xr-x"
    assert set(modes.values()) == {"-rw-r--r--"}


def test_neither_the_order_of_the_raw_members_nor_any_but_the_newest_time_matters(tmp_path: Path, raw: Path) -> None:
    with zipfile.ZipFile(raw, "a") as archive:
        archive.writestr(zipfile.ZipInfo("new.py", (2026, 1, 2, 3, 4, 6)), b"", zipfile.ZIP_DEFLATED)
        archive.writestr(zipfile.ZipInfo("old.py", (1999, 12, 31, 0, 0, 0)), b"", zipfile.ZIP_DEFLATED)
    other = tmp_path / "other" / raw.name
    other.parent.mkdir()
    write_zip(other, dict(reversed(read_zip(raw).items())), date_time=(2026, 1, 2, 3, 4, 6))

    finished = finish(raw, tmp_path / "b")

    assert finish(other, tmp_path / "a").read_bytes() == finished.read_bytes()
    with zipfile.ZipFile(finished) as archive:
        assert {info.date_time for info in archive.infolist()} == {(2026, 1, 2, 3, 4, 6)}


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_members_stay_packed_as_they_are_and_finishing_a_finished_wheel_changes_nothing(
    tmp_path: Path, raw: Path, compression: int
) -> None:
    write_zip(raw, read_zip(raw), compression=compression)
    once = finish(raw, tmp_path / "once")

    with zipfile.ZipFile(once) as archive:
        assert {archive.getinfo(name).compress_type for name in MEMBERS} == {compression}
    assert finish(once, tmp_path / "twice").read_bytes() == once.read_bytes()


@pytest.mark.parametrize(
    ("tags", "platform", "expected"),
    [
        ("cp311-abi3-manylinux_2_39_x86_64", "manylinux_2_28_x86_64", ["cp311-abi3-manylinux_2_28_x86_64"]),
        (
            "cp311.cp312-abi3-linux_x86_64",
            "manylinux2014_x86_64.manylinux_2_17_x86_64",
            [
                f"{tag}-abi3-{name}"
                for tag in ("cp311", "cp312")
                for name in ("manylinux2014_x86_64", "manylinux_2_17_x86_64")
            ],
        ),
    ],
)
def test_a_platform_replaces_the_one_in_the_name_and_in_wheel(
    tmp_path: Path, tags: str, platform: str, expected: list[str]
) -> None:
    raw = make_wheel(tmp_path, tags=tags)

    wheel = Wheel.open(finish_wheel(raw, build_record(CK), tmp_path / "dist", platform))

    tags = f"{tags.rpartition('-')[0]}-{platform}"
    assert wheel.path.name == f"flash_attn-2.8.3+rocm64torch2.9-{tags}.whl"
    text = wheel.read(f"{wheel.dist_info}/WHEEL").decode()
    lines = ["Wheel-Version: 1.0", "Generator: tests", "Root-Is-Purelib: false"]
    assert text.splitlines() == [*lines, *(f"Tag: {tag}" for tag in expected)]


@pytest.mark.parametrize(
    "text",
    [
        b"Wheel-Version: 1.0\nTag: py3-none-any\nBuild: 1\n",
        b"Wheel-Version: 1.0\r\ntag: py3-none-any\r\nBuild: 1\r\n\r\n",
        b"Wheel-Version: 1.0\nBuild: 1",
    ],
)
def test_wheel_keeps_all_but_its_tags(text: bytes) -> None:
    found = replace_tags(text, ["cp311-cp311-linux_x86_64", "cp310-cp310-linux_x86_64"])

    assert found == (b"Wheel-Version: 1.0\nBuild: 1\nTag: cp310-cp310-linux_x86_64\nTag: cp311-cp311-linux_x86_64\n")


def record_lines(path: Path) -> dict[str, str]:
    wheel = Wheel.open(path)
    lines = wheel.read(f"{wheel.dist_info}/RECORD").decode().splitlines()
    return {name.strip('"'): rest for name, _, rest in (line.partition(",sha256=") for line in lines)}


def test_record_keeps_the_lines_of_unchanged_members(tmp_path: Path) -> None:
    """A new hash would hide a change after the build."""
    name, renamed = "flash_attn-2.8.3.data/scripts/tool", "flash_attn-2.8.3+rocm72torch2.13triton.data/scripts/tool"
    raw = make_wheel(tmp_path / "raw", members={**MEMBERS, name: b"#!python\n", "flash_attn-2.8.3.data.py": b""})
    changed = tamper(raw, {"flash_attn/__init__.py": b"x = 2\n", name: b"#!/bin/sh\n"})

    path = finish(changed, tmp_path / "dist")

    assert record_lines(path)["flash_attn/__init__.py"] == record_lines(raw)["flash_attn/__init__.py"]
    assert record_lines(path)[renamed] == record_lines(raw)[name]
    assert "flash_attn-2.8.3.data.py" in record_lines(path), "not in the folder that is renamed"
    (found,) = [result for result in verify(path, context=small_machine(tmp_path)) if result.gate == "record"]
    assert found.status is Status.FAILED
    assert [finding.file for finding in found.findings] == [renamed, "flash_attn/__init__.py"]


LARGE = "flash_attn/large.bin"


@pytest.mark.parametrize(
    "line",
    [None, "", f"{LARGE},,", f"{LARGE},md5=abc,3145728", LARGE],
    ids=["no RECORD", "no line", "no hash", "a hash that installers refuse", "half a line"],
)
def test_a_member_that_record_has_no_sha256_of_gets_one(tmp_path: Path, raw: Path, line: str | None) -> None:
    name = f"{Wheel.open(raw).dist_info}/RECORD"
    lines = read_zip(raw)[name].decode().splitlines()
    kept = [line, *(item for item in lines if not item.startswith(LARGE))]
    other = tamper(raw, {name: None if line is None else "\n".join(map(str, kept)).encode()})

    with WheelFile.open(finish(other, tmp_path / "dist")) as wheel:
        wheel.validate_record(validate_contents=True)


def test_a_damaged_record_is_refused(tmp_path: Path, raw: Path) -> None:
    other = tamper(raw, {f"{Wheel.open(raw).dist_info}/RECORD": b"\xff"})

    with pytest.raises(InputError, match="damaged RECORD"):
        finish(other, tmp_path / "dist")

    assert list((tmp_path / "dist").glob("*")) == []


@pytest.mark.slow
def test_installers_take_it(tmp_path: Path, raw: Path) -> None:
    path = finish(raw, tmp_path / "dist")
    options = ["--no-deps", "--no-index", "--target"]
    pip, uv = ([sys.executable, "-m", "pip", "install"], ["uv", "pip", "install", "--python", sys.executable])
    for number, command in enumerate((pip, uv)):
        target = tmp_path / str(number)
        subprocess.run([*command, *options, target, path], check=True, capture_output=True)
        for name, data in MEMBERS.items():
            assert (target / name).read_bytes() == data
        assert (target / f"{Wheel.open(path).dist_info}/RECORD").is_file()


@pytest.mark.parametrize(
    ("name", "version", "what"),
    [
        ("flash_attn", "2.7.4.post1", "not a wheel of flash-attn 2.8.3"),
        ("numpy", "2.8.3", "not a wheel of flash-attn 2.8.3"),
        ("flash_attn", "2.8.3+rocm72torch2.9", "already has another label"),
        ("flash_attn", "2.8.3+cu12torch2.8", "already has another label"),
    ],
)
def test_a_wheel_of_another_release_or_label_is_refused(tmp_path: Path, name: str, version: str, what: str) -> None:
    raw = make_wheel(tmp_path / "raw", name=name, version=version)
    with pytest.raises(InputError, match=what):
        finish_wheel(raw, build_record(CK), tmp_path / "finished")
    assert not (tmp_path / "finished").exists()


LABEL = Label.parse("rocm62torch2.5")

UPSTREAM = """\
Metadata-Version: 2.4
Name: flash_attn
Version: 2.8.3
License: Copyright (c) 2022, the authors
        All rights reserved.
        
        Version: of these words no one cares
\tRequires-Dist: torch is not said here
Classifier: Programming Language :: Python :: 3
Requires-Python: >=3.9
Requires-Dist: torch
Requires-Dist: einops
Requires-Dist: pytest; extra == "test"
Provides-Extra: test
Dynamic: author

# Flash Attention \N{HIGH VOLTAGE SIGN} \N{GREEK SMALL LETTER ALPHA}

Requires-Dist: torch
Version: 1.0
"""  # noqa: W293


def requirements(metadata: str) -> list[str]:
    return Parser().parsestr(metadata).get_all("Requires-Dist", [])


def with_requirement(text: str) -> str:
    return UPSTREAM.replace("Requires-Dist: torch\nRequires-Dist: einops", f"{text}\nRequires-Dist: einops", 1)


def test_only_the_version_and_the_requirement_on_torch_change() -> None:
    before = UPSTREAM.replace("Requires-Dist: torch\nRequires-Dist: einops\n", "Requires-Dist: einops\n", 1)
    expected = before.replace("Version: 2.8.3\n", "Version: 2.8.3+rocm62torch2.5\n", 1).replace(
        'extra == "test"\n', 'extra == "test"\nRequires-Dist: torch==2.5.*\n', 1
    )

    assert protect_metadata(UPSTREAM, LABEL) == expected


TORCH_REQUIREMENTS: list[str] = [
    "Requires-Dist: torch",  # bare
    "Requires-Dist: torch>=2.4",  # open window
    "Requires-Dist: torch (==2.4.*)",  # in brackets, as METADATA once had it
    "Requires-Dist: torch==2.4.1+cu124",  # a CUDA build
    'Requires-Dist: torch; python_version >= "3.9"',  # with a marker
    'Requires-Dist: torch; extra == "cuda"',  # in an extra
    "Requires-Dist: torch @ https://example.org/torch.whl",  # by address
    "Requires-Dist: Torch",  # another case
    "requires-dist:torch",  # header in lower case
    "Requires-Dist:\n        torch",  # folded
    "Requires-Dist: torch\nRequires-Dist: torch<3",  # twice
]


def test_any_requirement_on_torch_becomes_the_pin() -> None:
    for requirement in TORCH_REQUIREMENTS:
        found = requirements(protect_metadata(with_requirement(requirement), LABEL))

        assert found == ["einops", 'pytest; extra == "test"', "torch==2.5.*"]


def test_requirements_that_only_sound_like_torch_stay() -> None:
    for name in ("torchvision", "torch-geometric", "triton-model-analyzer", 'einops; extra == "torch"'):
        assert name in requirements(protect_metadata(with_requirement(f"Requires-Dist: {name}"), LABEL))


def test_triton_is_never_required() -> None:
    for name in (*sorted(NEVER_REQUIRED), "Triton>=3.6.0", "pytorch_triton_rocm==3.5.1"):
        found = requirements(protect_metadata(with_requirement(f"Requires-Dist: {name}"), LABEL))
        assert "triton" not in "".join(found).lower()


def test_the_pin_is_the_last_header_even_of_the_shortest_metadata() -> None:
    head = "Name: flash_attn\nVersion: 2.8.3"
    for end in ("", "\n", "\n\n", "\n\n# Flash\n", "\nRequires-Dist: torch\n"):
        pinned = "Name: flash_attn\nVersion: 2.8.3+rocm62torch2.5\nRequires-Dist: torch==2.5.*\n"
        expected = pinned + end.removeprefix("\n").removeprefix("Requires-Dist: torch\n")
        assert protect_metadata(head + end, LABEL) == expected
    windows = UPSTREAM.replace("\n", "\r\n")
    assert protect_metadata(windows, LABEL) == protect_metadata(UPSTREAM, LABEL).replace("\n", "\r\n")


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("2.8.3", "2.8.3+rocm62torch2.5"),
        ("2.8.3+rocm64torch2.9", "2.8.3+rocm62torch2.5"),
        ("2.7.4.post1+cu12torch2.6", "2.7.4.post1+rocm62torch2.5"),  # upstream's CUDA label
    ],
)
def test_the_label_replaces_a_local_version(version: str, expected: str) -> None:
    metadata = protect_metadata(UPSTREAM.replace("Version: 2.8.3\n", f"Version: {version}\n", 1), LABEL)

    assert label_version(Version(version), LABEL) == expected
    assert Parser().parsestr(metadata)["Version"] == expected


@pytest.mark.parametrize(
    ("line", "header"),
    [
        pytest.param("Requires-Dist: torch >>> 2", "Requires-Dist", id="an unreadable requirement"),
        pytest.param("Version: two", "Version", id="an unreadable version"),
    ],
)
def test_metadata_that_cannot_be_read_is_an_input_error(line: str, header: str) -> None:
    with pytest.raises(InputError, match=f"damaged METADATA: {header}"):
        protect_metadata(f"{line}\n{UPSTREAM}", LABEL)


def test_a_wheel_whose_kernels_are_in_aiter_requires_any_version_of_it_once() -> None:
    label = Label.parse("rocm72torch2.13tritongit4a948e9")
    upstream = with_requirement("Requires-Dist: triton>=3.6.0")

    finished = protect_metadata(upstream, label)

    assert requirements(finished)[-2:] == ["amd-aiter>=0.0", "torch==2.13.*"]
    assert protect_metadata(finished, label) == finished


def test_metadata_with_another_version_keeps_all_but_the_requirements_that_are_not_used() -> None:
    head = "Name: amd-aiter\nVersion: 0.0.0\nRequires-Dist: einops\nRequires-Dist: psutil>=5\n"
    assert change_metadata(f"{head}\nVersion: 0.0.0\n", "0.0.20260602", {"psutil"}) == (
        "Name: amd-aiter\nVersion: 0.0.20260602\nRequires-Dist: einops\n\nVersion: 0.0.0\n"
    )
