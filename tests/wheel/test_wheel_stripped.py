"""The stripped copy of a wheel has exactly what auditwheel reads."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest

from elf_factory import library
from wheel_factory import PACKAGE, make_wheel, metadata_text, read_zip, wheel_text
from wheelfactory.core.errors import InputError, VerificationError
from wheelfactory.wheel.elf.read import read_elf
from wheelfactory.wheel.read import Wheel
from wheelfactory.wheel.stripped import parse_architecture, write_stripped_wheel

DEVICE = hashlib.shake_256(b"device code").digest(100_000)
LINUX = "cp311-cp311-linux_x86_64"
DIST_INFO = "flash_attn-2.8.3.dist-info"


def extension() -> bytes:
    return library(fatbin=DEVICE, needed=("libamdhip64.so.6",), defined=("PyInit_flash_attn_2_cuda",))


def program() -> bytes:
    return library(source="#include <stdlib.h>\nint number(char *a) { return atoi(a); }")


def strip(raw: Path, folder: Path) -> Path:
    folder.mkdir()
    stripped = write_stripped_wheel(raw, folder)
    assert stripped
    assert list(folder.iterdir()) == [stripped]
    return stripped


def test_stripped_wheel_has_every_elf_file_and_minimal_dist_info(tmp_path: Path) -> None:
    members = {
        **PACKAGE,
        "flash_attn_2_cuda.so": extension(),
        "flash_attn-2.8.3.data/scripts/tool": program(),
        "flash_attn/notes.so": b"no ELF file",
    }
    raw = make_wheel(tmp_path, tags=LINUX, members=members, dist_info_members={"LICENSE": b""})

    found = read_zip(strip(raw, tmp_path / "stripped"))

    listed = found.pop(f"{DIST_INFO}/RECORD").decode().splitlines()
    assert listed == [f"{name},," for name in [*found, f"{DIST_INFO}/RECORD"]]
    assert found.pop("flash_attn-2.8.3.data/scripts/tool") == program()
    assert found.pop(f"{DIST_INFO}/METADATA") == metadata_text().encode()
    assert found.pop(f"{DIST_INFO}/WHEEL") == wheel_text(LINUX).encode()
    assert list(found) == ["flash_attn_2_cuda.so"]


def test_its_elf_files_need_and_define_the_same_without_their_device_code(tmp_path: Path) -> None:
    raw = make_wheel(tmp_path, tags=LINUX, members={"flash_attn_2_cuda.so": extension()})

    library = read_zip(strip(raw, tmp_path / "stripped"))["flash_attn_2_cuda.so"]

    assert len(library) < len(extension()) - len(DEVICE) + 4096
    found = read_elf("", library)
    assert (found.needed, found.defined) == (("libamdhip64.so.6",), frozenset({"PyInit_flash_attn_2_cuda"}))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (f"flash_attn-2.8.3-{LINUX}.whl", f"flash_attn-2.8.3-{LINUX}.whl"),
        (
            "flash_attn-2.8.3+rocm64torch2.9-1-cp311-abi3-manylinux2014_x86_64.manylinux_2_28_x86_64.whl",
            "flash_attn-2.8.3+rocm64torch2.9-1-cp311-abi3-linux_x86_64.whl",
        ),
        ("flash_attn-2.8.3-cp311-cp311-linux_aarch64.whl", "flash_attn-2.8.3-cp311-cp311-linux_aarch64.whl"),
    ],
)
def test_stripped_wheel_is_tagged_for_its_architecture_only(tmp_path: Path, name: str, expected: str) -> None:
    raw = make_wheel(tmp_path, tags=LINUX, members={"flash_attn_2_cuda.so": extension()})

    assert strip(raw.rename(tmp_path / name), tmp_path / "stripped").name == expected


@pytest.mark.parametrize(
    "platform", ["any", "win_amd64", "linux_x86_64.linux_aarch64", "manylinux_2_28_i686", "linux_x86_64.any"]
)
def test_compiled_code_that_is_not_tagged_for_one_linux_is_refused(tmp_path: Path, platform: str) -> None:
    raw = make_wheel(tmp_path, tags=f"cp311-cp311-{platform}", members={"flash_attn_2_cuda.so": extension()})

    with pytest.raises(VerificationError, match="expected linux_x86_64 or linux_aarch64, found") as caught:
        write_stripped_wheel(raw, tmp_path)

    assert raw.name in caught.value.which
    assert caught.value.which.endswith(", ".join(Wheel.open(raw).platform_tags))
    assert caught.value.hint


def test_the_architecture_is_the_one_of_all_platform_tags(tmp_path: Path) -> None:
    tags = "cp311-cp311-manylinux_2_17_aarch64.manylinux2014_aarch64"

    assert parse_architecture(Wheel.open(make_wheel(tmp_path, tags=tags))) == "aarch64"


def test_a_wheel_without_compiled_code_has_none(tmp_path: Path) -> None:
    assert write_stripped_wheel(make_wheel(tmp_path), tmp_path) is None


def test_a_damaged_elf_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    raw = make_wheel(tmp_path, tags=LINUX, members={"flash_attn_2_cuda.so": extension()[:1000]})

    with pytest.raises(InputError, match=r"damaged ELF file: flash_attn_2_cuda\.so"):
        write_stripped_wheel(raw, tmp_path)


def test_a_damaged_member_is_an_error_before_auditwheel_sees_it(tmp_path: Path) -> None:
    raw = make_wheel(tmp_path, tags=LINUX, members={"flash_attn_2_cuda.so": extension()})
    with zipfile.ZipFile(raw) as archive:
        at = archive.getinfo("flash_attn_2_cuda.so").header_offset + 5000
    data = bytearray(raw.read_bytes())
    data[at] ^= 0xFF
    raw.write_bytes(data)

    with pytest.raises(InputError, match="damaged zip file"):
        write_stripped_wheel(raw, tmp_path)
