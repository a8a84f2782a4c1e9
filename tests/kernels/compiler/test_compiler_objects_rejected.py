"""Objects in another form, damaged ones and those of another source are refused before the link."""

from __future__ import annotations

from pathlib import Path

import pytest

from code_object_bytes import bundle, code_object
from elf_factory import hip_bundle, object_file, packed, with_section
from wheelfactory.core.errors import BuildError
from wheelfactory.kernels.compiler.objects import read_device_code, require_one_offload_form

# the form of device code

OLD = object_file(fatbin=hip_bundle("gfx942"))
NEW = object_file(fatbin=bundle([("hip-amdgcn-amd-amdhsa--gfx942", code_object())]))
RELOCATABLE = object_file(fatbin=b"", source=with_section(".llvm.offloading", b"code"))
HOST_ONLY, COMPRESSED = object_file(fatbin=b""), object_file(fatbin=packed(hip_bundle("gfx942")))


def objects(folder: Path, **contents: bytes) -> list[Path]:
    paths = [folder / f"{name}.o" for name in contents]
    for path, content in zip(paths, contents.values(), strict=True):
        path.write_bytes(content)
    return paths


@pytest.mark.parametrize("form", [OLD, NEW])
def test_objects_of_one_driver_may_be_linked_with_host_code_and_compressed_bundles(tmp_path: Path, form: bytes) -> None:
    require_one_offload_form(objects(tmp_path, one=form, two=form, host=HOST_ONLY, packed=COMPRESSED))


def test_objects_of_two_drivers_are_refused_and_one_of_each_is_named(tmp_path: Path) -> None:
    with pytest.raises(BuildError) as caught:
        require_one_offload_form(objects(tmp_path, flash_api=NEW, fmha_a=OLD, fmha_b=OLD, host=HOST_ONLY))

    assert caught.value.which == (
        "flash_api.o: bundles of the new offload driver; fmha_a.o: bundles of the old offload driver"
    )
    assert caught.value.hint
    assert "--no-offload-new-driver" in caught.value.hint


def test_relocatable_device_code_is_refused_because_the_link_would_drop_it(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"one\.o: relocatable device code of the new offload driver"):
        require_one_offload_form(objects(tmp_path, one=RELOCATABLE, two=RELOCATABLE))


def device_of(folder: Path, **code: bytes) -> dict[str, Path]:
    """The code objects of a source in a store, by arch."""
    for arch, data in code.items():
        (folder / arch).write_bytes(data)
    return {arch: folder / arch for arch in code}


HOST_CODE = object_file(fatbin=hip_bundle("gfx90a", "gfx942"))


def test_the_objects_of_a_source_have_the_kernels_that_its_host_code_registers(tmp_path: Path) -> None:
    code = {"gfx90a": code_object("gfx90a"), "gfx942": code_object("gfx942")}
    assert read_device_code("fmha", HOST_CODE, device_of(tmp_path, **code), is_guarded=False) == code
    guarded = device_of(tmp_path, gfx90a=code_object("gfx90a", kernels=()), gfx942=code_object("gfx942"))
    read_device_code("fmha", HOST_CODE, guarded, is_guarded=True)


@pytest.mark.parametrize(
    ("code", "is_guarded", "what", "which"),
    [
        (b"Not Found", False, "damaged kernel object", "no ELF magic"),
        (code_object("gfx90a"), False, "damaged kernel object", "of another arch"),
        (code_object()[:-1], False, "damaged kernel object", "outside the file"),
        (code_object(kernels=("_Z5otherv",)), True, "kernel object of another source", "_Z"),
        (code_object(kernels=()), False, "kernel object of another source", "_Z"),
    ],
    ids=["a page", "of another arch", "cut short", "of another source", "without kernels"],
)
def test_an_object_that_is_not_of_its_source_is_refused_before_the_link(
    tmp_path: Path, code: bytes, is_guarded: bool, what: str, which: str
) -> None:
    device = device_of(tmp_path, gfx90a=code_object("gfx90a"), gfx942=code)

    with pytest.raises(BuildError) as refused:
        read_device_code("fmha", HOST_CODE, device, is_guarded=is_guarded)

    assert (refused.value.what, which in refused.value.which) == (what, True)
    assert str(tmp_path / "gfx942") in refused.value.which
