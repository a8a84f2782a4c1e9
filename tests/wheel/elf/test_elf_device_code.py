"""Device code of a real HIP compiler: the readers agree with LLVM's tools."""

from __future__ import annotations

import re
from functools import cache
from itertools import count, product
from pathlib import Path

import pytest

from elf_factory import packed
from hip_toolchain import DECLARATIONS, HipToolchain
from wheelfactory.wheel.elf.image import ElfImage
from wheelfactory.wheel.elf.offload import Bundle, read_bundles
from wheelfactory.wheel.elf.read import FATBIN, ElfFile, read_elf

pytestmark = pytest.mark.slow

ARCHS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
TWO = ("gfx90a", "gfx942")
PACK = "--offload-compress"


NUMBERS = count()


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the objects that `compiled` caches."""
    return tmp_path_factory.mktemp("work")


@cache
def compiled(hip: HipToolchain, folder: Path, text: str, archs: tuple[str, ...], *flags: str, **environ: str) -> Path:
    """Return an object file compiled from a source text."""
    path = folder / f"{next(NUMBERS)}.hip"
    path.write_text(DECLARATIONS + text)
    return hip.compile(path, archs, "-nogpuinc", *flags, **environ)


def kernel(
    hip: HipToolchain, folder: Path, archs: tuple[str, ...], *flags: str, name: str = "add", **environ: str
) -> Path:
    """Return an object file with one kernel."""
    text = f'extern "C" __global__ void {name}(float *x) {{ x[0] += 1; }}\n'
    return compiled(hip, folder, text, archs, *flags, **environ)


def read(path: Path) -> ElfFile:
    return read_elf(path.name, path.read_bytes())


def cut_out(path: Path) -> list[tuple[Bundle, bytes]]:
    """The bundles of a file with the bytes of each."""
    image = ElfImage(path.read_bytes())
    section = image.find_section(FATBIN)
    assert section
    content = image.section_bytes(section)
    return [(item, bytes(content[item.offset : item.offset + item.size])) for item in read_bundles(content)]


def assert_as_llvm_sees_it(hip: HipToolchain, folder: Path, bundle: Bundle, content: bytes) -> None:
    """Assert the same entries, with the same unpacked size and arch."""
    (folder / "bundle").write_bytes(content)
    bundler = ("clang-offload-bundler", "--type=o", "--input=bundle")
    listed = hip.run(folder, *bundler, "--list").split()
    assert sorted(entry.id for entry in bundle.entries) == sorted(listed)
    names = [f"object{place}" for place in range(len(bundle.entries))]
    ids = ",".join(entry.id for entry in bundle.entries)
    hip.run(folder, *bundler, "--unbundle", f"--targets={ids}", *(f"--output={name}" for name in names))
    assert [(folder / name).stat().st_size for name in names] == [entry.size for entry in bundle.entries]
    device = [(name, entry.target) for name, entry in zip(names, bundle.entries, strict=True) if entry.target]
    headers = hip.run(folder, "llvm-readelf", "-h", *(name for name, _ in device))
    assert re.findall(r"Flags:.*, (gfx[0-9a-z-]+)", headers) == [target.arch for _, target in device]
    assert not any("another arch" in entry.fault or (entry.size and not entry.target) for entry in bundle.entries)


@pytest.mark.parametrize(
    ("archs", "form", "flags", "environ"),
    [
        pytest.param(ARCHS, "plain", [], {}, id="plain"),
        pytest.param(ARCHS, "CCOB v2 zstd", [PACK], {}, id="packed"),
        pytest.param(ARCHS, "CCOB v3 zstd", [PACK], {"COMPRESSED_BUNDLE_FORMAT_VERSION": "3"}, id="packed, version 3"),
        pytest.param(("gfx90a:xnack-", "gfx90a:sramecc+:xnack+"), "plain", [], {}, id="features"),
        pytest.param(("gfx9-4-generic", "gfx11-generic"), "CCOB v2 zstd", [PACK], {}, id="generic targets"),
    ],
)
def test_the_bundle_of_one_object(
    hip: HipToolchain, work: Path, archs: tuple[str, ...], form: str, flags: list[str], environ: dict[str, str]
) -> None:
    linked = hip.link(work / "made.so", [kernel(hip, work, archs, *flags, **environ)])

    ((bundle, content),) = cut_out(linked)

    assert (bundle.form, bundle.targets) == (form, frozenset(archs))
    assert_as_llvm_sees_it(hip, work, bundle, content)


def test_a_library_has_a_bundle_for_each_object_with_device_code(hip: HipToolchain, work: Path) -> None:
    objects = [
        kernel(hip, work, TWO, name="plain"),
        compiled(hip, work, 'extern "C" int host() { return 7; }', TWO),
        kernel(hip, work, TWO, PACK, name="packed"),
        kernel(hip, work, ("gfx1100",), name="more"),
    ]

    found = cut_out(hip.link(work / "made.so", objects))

    assert [bundle.form for bundle, _ in found] == ["plain", "CCOB v2 zstd", "plain"]
    assert [bundle.targets for bundle, _ in found] == [frozenset(TWO), frozenset(TWO), {"gfx1100"}]
    for bundle, content in found:
        assert_as_llvm_sees_it(hip, work, bundle, content)


def test_relocatable_device_code_is_one_bundle_for_the_whole_library(hip: HipToolchain, work: Path) -> None:
    objects = [kernel(hip, work, TWO, "-fgpu-rdc", name=name) for name in ("one", "two")]
    offload = [f"--offload-arch={arch}" for arch in TWO]

    linked = hip.link(work / "made.so", objects, "-fgpu-rdc", "--hip-link", *offload)

    assert [read(item).bundles for item in objects] == [(), ()]  # device code is in them, not for the loader yet
    ((bundle, content),) = cut_out(linked)
    assert bundle.targets == frozenset(TWO)
    assert_as_llvm_sees_it(hip, work, bundle, content)


# the new offload driver

NEW_DRIVER = "--offload-new-driver"


@pytest.mark.parametrize("names", [("one",), ("one", "two")])
def test_the_new_driver_writes_a_bundle_for_each_object_too(
    hip: HipToolchain, work: Path, names: tuple[str, ...]
) -> None:
    objects = [kernel(hip, work, TWO, NEW_DRIVER, name=name) for name in names]
    linked = hip.link(work / "made.so", objects)

    for path in (*objects, linked):
        assert (read(path).packages, read(path).relocatable_kernels) == ((), 0)
    found = cut_out(linked)
    assert len(found) == len(names)
    for bundle, content in found:
        assert bundle.targets == frozenset(TWO)
        assert all(entry.id.startswith(("host-", "hip-amdgcn-")) for entry in bundle.entries)
        assert_as_llvm_sees_it(hip, work, bundle, content)


def test_relocatable_device_code_of_the_new_driver_is_packages_until_the_device_link(
    hip: HipToolchain, work: Path
) -> None:
    one = kernel(hip, work, TWO, "-fgpu-rdc", NEW_DRIVER, name="one")
    before = read(one)
    offload = [f"--offload-arch={arch}" for arch in TWO]
    after = read(hip.link(work / "made.so", [one], "-fgpu-rdc", "--hip-link", NEW_DRIVER, *offload))

    assert (before.bundles, before.relocatable_kernels) == ((), 1)
    assert (after.packages, after.relocatable_kernels, len(after.bundles)) == ((), 1, 1)
    hip.run(work, "llvm-objcopy", "--dump-section", ".llvm.offloading=packages", one.name, "copy.o")
    images = [entry for package in before.packages for entry in package.entries]
    assert [str(entry.target) for entry in images] == [*TWO]
    for entry in images:
        keys = f"triple=amdgcn-amd-amdhsa,arch={entry.target},kind=hip"
        hip.run(work, "clang-offload-packager", "packages", f"--image=file=image,{keys}")
        assert (work / "image").stat().st_size == entry.size


def test_an_ordinary_linker_drops_packages_without_a_message_and_the_kernels_are_still_counted(
    hip: HipToolchain, work: Path
) -> None:
    objects = [
        kernel(hip, work, TWO, "-fgpu-rdc", NEW_DRIVER, name="lost"),
        kernel(hip, work, TWO, name="kept"),
    ]
    hip.run(work, "ld", "-shared", *(item.name for item in objects), "-o", "made.so")

    linked = read(work / "made.so")
    assert (len(linked.bundles), linked.registration.bundles) == (1, (0,))  # which alone looks complete
    assert (linked.packages, linked.relocatable_kernels) == ((), 1)


def test_a_kernel_without_its_device_code_leaves_a_symbol_undefined(hip: HipToolchain, work: Path) -> None:
    linked = read(hip.link(work / "made.so", [kernel(hip, work, TWO, "--cuda-host-only")]))

    assert (linked.bundles, linked.registration.bundles) == ((), (None,))
    assert [symbol.name for symbol in linked.undefined if symbol.name.startswith("__hip_fatbin_")]


@pytest.mark.parametrize("flags", [[], [PACK], [NEW_DRIVER]], ids=["plain", "packed", "new driver"])
def test_what_host_code_registers_is_what_the_bundles_have(hip: HipToolchain, work: Path, flags: list[str]) -> None:
    texts = [f"__global__ void {name}(float *x) {{ x[0] += 1; }}\n" for name in ("one", "two")]
    objects = [compiled(hip, work, text, TWO, *flags) for text in texts]
    for options in product(("-fuse-ld=bfd", "-fuse-ld=lld"), ("-g", "-s")):
        linked = read(hip.link(work / "made.so", objects, *options))

        assert linked.registration.bundles == tuple(bundle.offset for bundle in linked.bundles)
        assert [
            [(entry.kernels, entry.fault) for entry in bundle.entries if entry.target] for bundle in linked.bundles
        ] == [[(("_Z3onePf",), "")] * 2, [(("_Z3twoPf",), "")] * 2]
        assert linked.registration.kernels == {"_Z3onePf", "_Z3twoPf"}
        assert linked.layout_faults == ()


def test_other_bundle_formats_read_as_llvm_reads_them(hip: HipToolchain, work: Path) -> None:
    ((_, plain),) = cut_out(hip.link(work / "made.so", [kernel(hip, work, TWO)]))
    for version, method in product((1, 2, 3), ("zlib", "zstd")):
        content = packed(plain, version, method)

        (bundle,) = read_bundles(memoryview(content))

        assert bundle.form == f"CCOB v{version} {method}"
        assert_as_llvm_sees_it(hip, work, bundle, content)
