"""The page of GPU measurements links every archived report, and claims nothing about an AMD GPU."""

from __future__ import annotations

import json
import re

from docs.pages import Page
from wheelfactory.core.files import ROOT

PAGE = Page("docs/explanation/measured-on-a-gpu.md")


def test_every_archived_report_is_linked_and_is_of_a_gpu_that_the_page_names() -> None:
    reports = {path.name: json.loads(path.read_bytes()) for path in (ROOT / "docs/measured").iterdir()}
    assert set(re.findall(r"\(../measured/([^)]+)\)", PAGE.text)) == reports.keys()
    devices = {report["hardware"]["device"] for report in reports.values()}
    assert all(device in PAGE.text for device in devices)
    assert not any("AMD" in device for device in devices)
    assert not re.search(r"verified on (gfx|AMD)", PAGE.text)
