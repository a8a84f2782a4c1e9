"""Reading wheels: names, members, ELF files and build records; damaged ones are refused."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from elf_factory import library
from wheel_factory import CK, TRITON, build_record, finished_wheel, make_wheel, metadata_text, tamper, write_zip
from wheelfactory.core.errors import InputError
from wheelfactory.wheel.read import BUILD_RECORD_NAME, Wheel, read_build_record

DIST_INFO = "flash_attn-2.8.3.dist-info"


def test_file_name_is_parsed(tmp_path: Path) -> None:
    tags = "cp311-cp311-manylinux1_x86_64.manylinux_2_5_x86_64"
    wheel = Wheel.open(make_wheel(tmp_path, version="2.8.3+rocm64torch2.9", tags=tags))

    assert (wheel.name, wheel.version) == ("flash-attn", Version("2.8.3+rocm64torch2.9"))
    assert wheel.platform_tags == ("manylinux1_x86_64", "manylinux_2_5_x86_64")


def test_metadata_is_parsed(tmp_path: Path) -> None:
    metadata = metadata_text(requires=["torch==2.9.*", "einops"], requires_python=">=3.9")
    wheel = Wheel.open(make_wheel(tmp_path, metadata=metadata))

    assert wheel.metadata_bytes == metadata.encode()
    assert [str(item) for item in wheel.requirements] == ["torch==2.9.*", "einops"]
    assert wheel.requires_python == SpecifierSet(">=3.9")


def test_members_and_their_sizes_without_folders(tmp_path: Path) -> None:
    members = {"flash_attn/": b"", "flash_attn/a.py": b"12345", "notes.dist-info": b""}
    wheel = Wheel.open(make_wheel(tmp_path, members=members))

    assert wheel.sizes["flash_attn/a.py"] == 5
    assert "flash_attn/" not in wheel.sizes
    assert wheel.dist_info == DIST_INFO, "not the file that is named alike"


def test_shared_objects_are_known_by_content(tmp_path: Path) -> None:
    made = library(soname="libx.so.1", needed=("libc10.so",), runpath="/opt/a:$ORIGIN/b")
    members = {"flash_attn/kernels": made, "flash_attn/not.so": b"just text", "flash_attn/empty.so": b""}

    (found,) = Wheel.open(make_wheel(tmp_path, members=members)).elf_files

    assert (found.name, found.soname) == ("flash_attn/kernels", "libx.so.1")
    assert found.needed == ("libc10.so",)
    assert found.runpath == ("/opt/a", "$ORIGIN/b")


def test_what_is_no_wheel_by_its_name_or_is_not_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x-1-py3-none-any.whl").mkdir()
    for name in ("x-1-py3-none-any.whl", "y-1-py3-none-any.whl", "no/y-1-py3-none-any.whl", "y.whl"):
        with pytest.raises(InputError, match="no such file"):
            Wheel.open(tmp_path / name)
    for rest in (".whl", "-2.8.3.whl", "-two-py3-none-any.whl", "-2.8.3-py3-none-any.zip"):
        (tmp_path / f"flash_attn{rest}").touch()
        with pytest.raises(InputError, match="not a wheel file name"):
            Wheel.open(tmp_path / f"flash_attn{rest}")


def test_a_file_that_is_not_a_zip_file_is_refused(tmp_path: Path) -> None:
    path = make_wheel(tmp_path)
    data = path.read_bytes()
    for other in (b"", b"<html>404 Not Found</html>", data[: len(data) // 2], data[:-1]):
        path.write_bytes(other)
        with pytest.raises(InputError, match="damaged zip file"):
            look_at_everything(path)


def look_at_everything(path: Path) -> None:
    wheel = Wheel.open(path)
    _ = wheel.requirements, wheel.requires_python, wheel.elf_files


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({f"{DIST_INFO}/METADATA": None}, f"missing from the wheel: {DIST_INFO}/METADATA"),
        ({"einops-0.8.2.dist-info/METADATA": b""}, "2 dist-info folders"),
        ({f"{DIST_INFO}/{name}": None for name in ("METADATA", "WHEEL", "RECORD")}, "0 dist-info folders"),
        ({f"{DIST_INFO}/METADATA": b"Name: \xff"}, "damaged METADATA"),
        ({f"{DIST_INFO}/METADATA": b"Requires-Dist: torch >>> 2\n"}, "damaged METADATA: Requires-Dist"),
        ({f"{DIST_INFO}/METADATA": b"Requires-Python: three\n"}, "damaged METADATA: Requires-Python"),
    ],
)
def test_a_wheel_with_missing_metadata_is_refused(tmp_path: Path, changes: dict[str, bytes | None], what: str) -> None:
    path = tamper(make_wheel(tmp_path), changes)

    with pytest.raises(InputError, match=what):
        look_at_everything(path)


@pytest.mark.parametrize(
    ("metadata", "what"),
    [
        (
            metadata_text(requires=[f"x; {'(' * 2000}python_version > '3'{')' * 2000}"]),
            "damaged METADATA: Requires-Dist",
        ),
        (metadata_text() + "x" * (1 << 21), "too long: METADATA"),
    ],
    ids=["brackets in brackets", "a long description"],
)
def test_metadata_that_would_keep_its_readers_busy(tmp_path: Path, metadata: str, what: str) -> None:
    wheel = Wheel.open(make_wheel(tmp_path, metadata=metadata))

    with pytest.raises(InputError, match=what):
        wheel.requirements  # noqa: B018 # it reads


@pytest.mark.parametrize(
    "kind", ["Content-Type: message/rfc822\n\n", 'Content-Type: multipart/mixed; boundary="a"\n\n--a\n']
)
def test_a_description_of_any_type_is_plain_text(tmp_path: Path, kind: str) -> None:
    metadata = Wheel.open(make_wheel(tmp_path, metadata="Name: x\n" + 2000 * kind)).metadata

    assert (metadata["Name"], metadata.is_multipart()) == ("x", False)


def test_a_member_whose_bytes_changed_on_disk(tmp_path: Path) -> None:
    text = b"Metadata-Version: 2.1 and so on, stored as it is"
    path = tmp_path / "flash_attn-2.8.3-py3-none-any.whl"
    write_zip(path, {f"{DIST_INFO}/METADATA": text}, compression=zipfile.ZIP_STORED)
    path.write_bytes(path.read_bytes().replace(text, text.upper()))

    with pytest.raises(InputError, match=r"damaged zip file.*Bad CRC-32"):
        _ = Wheel.open(path).metadata


TRUTH = json.loads(build_record(CK).as_bytes())


def test_a_written_record_reads_back_and_other_wheels_have_none(tmp_path: Path) -> None:
    for cell in (CK, TRITON):
        assert read_build_record(Wheel.open(finished_wheel(tmp_path, cell))) == build_record(cell)
    assert read_build_record(Wheel.open(make_wheel(tmp_path))) is None


def without(*fields: str) -> str:
    return json.dumps({name: value for name, value in TRUTH.items() if name not in fields})


DAMAGED_RECORDS: list[str] = [
    "",  # empty
    "not JSON",  # not JSON
    "[]",  # not an object
    without("cell"),  # no cell
    without("label", "source"),  # no label and no source
    json.dumps({**TRUTH, "format": 2}),  # a later format
    json.dumps({**TRUTH, "gpu": "MI300X"}),  # an unknown field
    json.dumps({**TRUTH, "offload_archs": "gfx90a"}),  # archs as text
    json.dumps({**TRUTH, "toolchain": {"glibc": "new"}}),  # a glibc that is no version
    "\udcff",  # not UTF-8
]


def test_a_damaged_record_is_an_input_error_that_names_it(tmp_path: Path) -> None:
    for text in DAMAGED_RECORDS:
        path = make_wheel(tmp_path, dist_info_members={BUILD_RECORD_NAME: text.encode(errors="surrogateescape")})

        with pytest.raises(InputError, match="damaged build record") as caught:
            read_build_record(Wheel.open(path))

        assert BUILD_RECORD_NAME in caught.value.which
        assert path.name in caught.value.which
