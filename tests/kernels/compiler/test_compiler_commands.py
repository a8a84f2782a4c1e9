"""Which headers a source includes before anything else, as these can be precompiled for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from wheelfactory.kernels.compiler.commands import first_includes

LICENCE = "// SPDX-License-Identifier: MIT\n// auto generated\n\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f'{LICENCE}#include "a/b.hpp"\n#include "c.hpp"\n#include <iostream>\n', ("a/b.hpp", "c.hpp")),
        ('#include "a.hpp"\n// why\n#include "b.hpp"\nint x;\n#include "late.hpp"\n', ("a.hpp", "b.hpp")),
        ('#include <iostream>\n#include "a.hpp"\n', ()),
        ('#define X\n#include "a.hpp"\n', ()),
        ("", ()),
        (" " * 4000 + "x", ()),
    ],
    ids=["two", "a comment between", "a system header first", "a macro first", "empty", "much white space"],
)
def test_first_includes(tmp_path: Path, text: str, expected: tuple[str, ...]) -> None:
    source = tmp_path / "kernel.hip"
    source.write_text(text)
    assert first_includes(str(source)) == expected
