"""The script that takes the README's picture of the search page."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from published_site import publish_cells
from search_page import need_chromium

SCRIPT = Path(__file__).parents[2] / "scripts/screenshot_site.py"


@pytest.mark.slow
def test_the_picture_is_a_png_of_less_than_150_kb(tmp_path: Path) -> None:
    need_chromium()
    site, picture = tmp_path / "wheelhouse", tmp_path / "pictures" / "search.png"
    publish_cells(site, {"fa2.8.3-rocm7.2-torch2.13.0-py3-triton": ""})
    subprocess.run([sys.executable, "-m", "wheelfactory", "index", site], check=True)
    done = subprocess.run([sys.executable, SCRIPT, site, picture], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    data = picture.read_bytes()
    assert data.startswith(b"\x89PNG")
    assert int.from_bytes(data[16:20], "big") == 1280
    assert len(data) < 150_000
