"""Inspect: the facts of any wheel, as lines for a person and as JSON for a program."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path

import pytest

from wheel_factory import CK, PACKAGE, TRITON, build_record, finished_wheel, make_wheel, read_zip
from wheelfactory.errors import InputError
from wheelfactory.inspect import describe, inspect_wheel
from wheelfactory.wheel.record import Toolchain


@pytest.fixture
def extension(tmp_path: Path) -> bytes:
    """A shared object that needs libm and looks for it in two places."""
    path = tmp_path / "extension.so"
    flags = ["-shared", "-fPIC", "-Wl,--no-as-needed,-rpath,/opt/rocm/lib:$ORIGIN", "-lm", "-nodefaultlibs"]
    subprocess.run(["cc", "-x", "c", "-", *flags, "-o", path], input=b"int x;", check=True)
    return path.read_bytes()


def test_a_wheel_of_this_factory_for_a_person(tmp_path: Path, extension: bytes) -> None:
    toolchain = Toolchain(torch="2.9.1+rocm6.4", cxx11_abi=False, glibc="2.35")
    path = finished_wheel(
        tmp_path,
        members={**PACKAGE, "flash_attn_2_cuda.so": extension},
        record=build_record(CK, toolchain=toolchain),
    )
    data = path.read_bytes()

    lines = describe(inspect_wheel(path))

    assert lines == [
        "flash_attn-2.8.3+rocm64torch2.9-cp311-cp311-manylinux_2_28_x86_64.whl",
        f"  sha256    {hashlib.sha256(data).hexdigest()}",
        f"  size      {len(data):,} bytes, {sum(map(len, read_zip(path).values())):,} unpacked in 7 members",
        "  version   2.8.3+rocm64torch2.9",
        "  label     ROCm 6.4, torch 2.9, ck",
        "  tags      cp311-cp311-manylinux_2_28_x86_64",
        "  python    >=3.9",
        "  requires  torch==2.9.*, einops",
        "  ELF       flash_attn_2_cuda.so",
        "    needs   libm.so.6",
        "    runpath /opt/rocm/lib:$ORIGIN",
        "  record    cell fa2.8.3-rocm6.4-torch2.9.1-cp311-ck",
        "    archs     gfx90a, gfx942",
        f"    source    sha256:{'a' * 64}",
        "    torch     2.9.1+rocm6.4",
        "    cxx11_abi False",
        "    glibc     2.35",
    ]


def test_a_foreign_wheel_for_a_person(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, name="einops", version="0.8.2", members={"einops.py": b""}, metadata="Name: einops\n")

    lines = describe(inspect_wheel(path))

    assert "  label     none of this factory" in lines
    assert "  python    any" in lines
    assert "  requires  nothing" in lines
    assert lines[-1] == "  record    none: not a finished wheel of this factory"


@pytest.mark.parametrize(
    "version", ["2.8.3+cu12torch2.8", "2.8.3+rocm620torch2.5", "2.8.3+rocm62torch2", "2.8.3+7.2", "2.8.3"]
)
def test_the_label_of_another_factory_is_not_guessed_at(tmp_path: Path, version: str) -> None:
    assert inspect_wheel(make_wheel(tmp_path, version=version)).label is None


def test_a_wheel_of_this_factory_for_a_program(tmp_path: Path) -> None:
    path = finished_wheel(tmp_path, TRITON)

    facts = json.loads(json.dumps(inspect_wheel(path).as_json()))

    assert facts["file"] == path.name
    assert facts["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (facts["size"], facts["members"]) == (path.stat().st_size, 6)
    assert (facts["name"], facts["version"]) == ("flash-attn", "2.8.3+rocm72torch2.13triton")
    assert (facts["label"], facts["tags"]) == ("rocm72torch2.13triton", ["py3-none-any"])
    assert facts["requires_dist"] == ["torch==2.13.*", "einops"]
    assert facts["elf_files"] == []
    assert facts["record"] == json.loads(build_record(TRITON).to_bytes())


def test_a_foreign_wheel_for_a_program(tmp_path: Path, extension: bytes) -> None:
    path = make_wheel(tmp_path, members={"x.so": extension})

    facts = json.loads(json.dumps(inspect_wheel(path).as_json()))

    assert (facts["label"], facts["record"]) == (None, None)
    assert facts["elf_files"] == [
        {"name": "x.so", "soname": None, "needed": ["libm.so.6"], "runpath": ["/opt/rocm/lib", "$ORIGIN"]}
    ]


def test_what_is_no_wheel_is_an_input_error(tmp_path: Path) -> None:
    path = tmp_path / "flash_attn-2.8.3-py3-none-any.whl"
    path.write_text("not found")

    with pytest.raises(InputError, match="not a zip file"):
        inspect_wheel(path)
