"""The versions in README are those of the matrix."""

from __future__ import annotations

from command_line import Cli
from wheelfactory.core.files import MATRIX

README = MATRIX.with_name("README.md")
BEGIN, END = "<!-- ./factory matrix --table -->\n\n", "\n<!-- end -->"


def test_what_is_supported_is_what_the_command_prints(cli: Cli) -> None:
    shown = cli("matrix", "--matrix", MATRIX, "--table")
    text = README.read_text()

    assert shown.code == 0
    assert text.partition(BEGIN)[2].partition(END)[0] == shown.out, "put the output of the command between the marks"
