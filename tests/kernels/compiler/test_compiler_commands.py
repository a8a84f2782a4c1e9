"""The directives that a source begins with, as these can be precompiled for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from wheelfactory.kernels.compiler.commands import preamble

A, C = 'include "a/b.hpp"', 'include "c.hpp"'
LICENCE = "// SPDX-License-Identifier: MIT\n// auto generated\n\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f'{LICENCE}#include "a/b.hpp"\n#include "c.hpp"\n#include <iostream>\n', (A, C)),
        ('#include "a/b.hpp"\n// why\n#include "c.hpp"\nint x;\n#include "late.hpp"\n', (A, C)),
        ('#undef X\n#define X 1\n#include "a/b.hpp"\n', ("undef X", "define X 1", A)),
        ('#include "a/b.hpp"\n#define X 1\n', (A,)),
        ('#include <iostream>\n#include "a/b.hpp"\n', ()),
        ('#define X(y) y\n#include "a/b.hpp"\n', ()),
        ("", ()),
        (" " * 4000 + "x", ()),
    ],
)
def test_preamble(tmp_path: Path, text: str, expected: tuple[str, ...]) -> None:
    source = tmp_path / "kernel.hip"
    source.write_text(text)
    assert preamble(str(source)) == expected
