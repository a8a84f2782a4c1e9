"""The documentation's table of faults lists the tested faults."""

from __future__ import annotations

import re
from pathlib import Path

from fake_github import FAULTS
from fake_github.faults import SITUATIONS
from wheelfactory.core.files import ROOT

PAGE = ROOT / "docs/reference/github-releases.md"


def test_the_documentation_lists_exactly_the_injected_faults() -> None:
    section = PAGE.read_text().partition("## Faults")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.+) \| (.+) \|$", section, re.MULTILINE)
    listed = [fault for fault, outcome in rows if fault != "fault" and outcome]
    assert listed == [*(fault.name for fault in FAULTS), *SITUATIONS]


def test_each_other_fault_of_the_table_has_a_test() -> None:
    for test in SITUATIONS.values():
        file, _, name = test.partition("::")
        path = ROOT / file if "/" in file else Path(__file__).with_name(f"test_release_github_{file}")
        assert f"\ndef {name}(" in path.read_text()
