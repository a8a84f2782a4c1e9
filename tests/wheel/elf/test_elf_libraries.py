"""System libraries and torch's: the readers agree with binutils."""

from __future__ import annotations

import mmap
import re
import subprocess
import sysconfig
from pathlib import Path

import pytest

from wheelfactory.build.environments import make_build_environment
from wheelfactory.wheel.elf.read import ElfFile, read_elf

SYSTEM = Path("/usr/lib", str(sysconfig.get_config_var("MULTIARCH")))
NAMES = ("libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1", "libz.so.1", "ld-linux-x86-64.so.2")


def printed(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def assert_as_binutils_see_it(path: Path) -> None:
    with path.open("rb") as file:
        found = read_elf(path.name, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    table = printed("readelf", "-W", "-d", path)
    assert found.needed == tuple(re.findall(r"\(NEEDED\).*\[(.*)\]", table))
    assert [found.soname] == (re.findall(r"\(SONAME\).*\[(.*)\]", table) or [None])
    assert ":".join(found.runpath) == ":".join(re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", table))
    assert found.versions == needed_versions(path)
    undefined, defined = symbols(path)
    assert {(item.name, item.version or "", item.weak) for item in found.undefined} == undefined
    assert found.defined == defined
    assert_glibc(found)


def needed_versions(path: Path) -> tuple[tuple[str, str], ...]:
    """Parse the needed versions in `readelf -V`: a line for each library, then one for each version."""
    _, _, needs = printed("readelf", "-W", "-V", path).partition("Version needs section")
    found, library = [], ""
    for kind, name in re.findall(r"(File|Name): (\S+)", needs):
        if kind == "File":
            library = name
        else:
            found.append((library, name))
    return tuple(sorted(set(found)))


def symbols(path: Path) -> tuple[set[tuple[str, str, bool]], set[str]]:
    """Return undefined symbols with version and weakness, and the names of visible defined symbols."""
    undefined, defined = set(), set()
    for line in printed("nm", "-D", "--with-symbol-versions", path).splitlines():
        kind, name = line[17:].split(" ", 1)
        name, _, version = name.partition("@")
        if kind in "Uwv" and not line[:16].strip():
            undefined.add((name, version, kind != "U"))
        elif kind.isupper() or kind in "wvui":  # lower case is local, but for these
            defined.add(name)
    return undefined, defined


def assert_glibc(found: ElfFile) -> None:
    texts = [version for _, version in found.versions if re.match(r"GLIBC_2\.", version)]
    newest = max(texts, key=lambda text: [int(part) for part in text[6:].split(".")], default=None)
    assert (f"GLIBC_{found.glibc}" if found.glibc else None) == newest


def test_libraries_of_the_system() -> None:
    paths = [path for name in NAMES if (path := SYSTEM / name).exists()]

    assert len(paths) > 3
    for path in paths:
        assert_as_binutils_see_it(path)


@pytest.mark.parametrize("style", ["gnu", "sysv", "both"])
@pytest.mark.parametrize("exports", ["default", "hidden"])
def test_a_library_with_each_kind_of_hash_table_whether_it_exports_something_or_not(
    tmp_path: Path, style: str, exports: str
) -> None:
    source = 'extern int puts(const char *);\nint say(void) { return puts("x"); }'
    flags = ["-shared", "-fPIC", f"-fvisibility={exports}", f"-Wl,--hash-style={style}"]
    path = tmp_path / "made.so"
    subprocess.run(["cc", "-x", "c", "-", *flags, "-o", path], input=source, text=True, check=True)

    assert_as_binutils_see_it(path)


@pytest.mark.slow
def test_the_libraries_of_torch(cache: Path) -> None:
    paths = sorted((make_build_environment(cache).site_packages / "torch/lib").glob("*.so*"))

    assert {"libc10.so", "libtorch_cpu.so", "libtorch_python.so"} <= {path.name for path in paths}
    for path in paths:
        assert_as_binutils_see_it(path)
