"""For which archs a source has device code, as its guard says; where that is not sure, it has for all."""

from __future__ import annotations

from pathlib import Path

import pytest

from wheelfactory.kernels.compiler.guards import has_code, is_empty, read_guard

ARCHS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1150", "gfx1201")
TOP = '#include "fmha_fwd.hpp"\n// why\n'
GUARD = "#if !defined(__HIP_DEVICE_COMPILE__) || (defined(__gfx9__))\n"


def read(folder: Path, text: str) -> str:
    path = folder / "kernel.hip"
    path.write_text(text)
    return read_guard(str(path))


def test_a_guard_encloses_all_code_of_a_source(tmp_path: Path) -> None:
    text = f"{GUARD}#ifdef X\nint x;\n#else\n#endif\nint y;\n#endif\n"
    assert read(tmp_path, TOP + text) == "defined(__gfx9__)"
    assert read(tmp_path, "#define FAST 1\n/* two\nlines */" + TOP + text + "// end\n\n") == "defined(__gfx9__)"


@pytest.mark.parametrize(
    "text",
    [
        "int x;\n",
        f"{GUARD}#endif\nint x;\n",
        f"int x;\n{GUARD}#endif\n",
        f"{GUARD}#else\nint x;\n#endif\n",
        f"{GUARD}#endif\n#if 1\nint x;\n#endif\n",
        f"{GUARD}int x;\n",
        "#if defined(__gfx9__)\nint x;\n#endif\n",
        f"#pragma once\n{GUARD}#endif\n",
    ],
    ids=["no guard", "after", "before", "else", "a second", "no end", "host code too", "an unknown directive"],
)
def test_anything_else_is_no_guard(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, TOP + text) == ""


@pytest.mark.parametrize(
    ("guard", "archs"),
    [
        ("", ARCHS),
        ("defined(__gfx9__)", ("gfx90a", "gfx942", "gfx950")),
        ("defined(__gfx950__)", ("gfx950",)),
        ("defined(__gfx9__) && !defined(__gfx950__)", ("gfx90a", "gfx942")),
        ("defined(__gfx11__)", ("gfx1100", "gfx1150")),
        ("defined(__gfx115__)", ("gfx1150",)),
        ("defined(__gfx12__)", ("gfx1201",)),
        ("defined(__gfx942__) || defined(__gfx12__) && defined(__gfx11__)", ("gfx942",)),
        ("(defined(__gfx942__)||defined(__gfx12__))&&!defined(__gfx11__)", ("gfx942", "gfx1201")),
        ("defined(__gfx9__) && defined(OTHER)", ARCHS),
        ("__gfx9__ > 1", ARCHS),
        ("defined(__gfx9__", ARCHS),
        ("(defined(__gfx9__)", ARCHS),
        ("defined(__gfx9__) defined(__gfx9__)", ARCHS),
    ],
)
def test_which_archs_a_guard_has_code_for(guard: str, archs: tuple[str, ...]) -> None:
    assert tuple(arch for arch in ARCHS if has_code(guard, arch)) == archs


def test_only_device_code_of_one_arch_can_be_empty() -> None:
    guard = "defined(__gfx12__)"
    assert is_empty(guard, ("gfx942",))
    assert not is_empty(guard, ("gfx1201",))
    assert not is_empty(guard, ("host",))
    assert not is_empty(guard, ("gfx942", "host"))
