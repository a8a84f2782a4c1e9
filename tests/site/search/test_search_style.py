"""Scripts and styles of the page are formatted and linted (biome), and contain no dangerous call."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

import wheelfactory.site
from npm_tools import PINS, npm_package

PAGE = Path(wheelfactory.site.__file__).parent / "page"
SCRIPTS = sorted((PAGE / "search").glob("*.js"))


def check(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run biome on a folder: format, lint, and warnings as errors."""
    program = npm_package("@biomejs/cli-linux-x64") / "biome"
    config = f"--config-path={PINS / 'browser' / 'biome.json'}"
    command: list[str | Path] = [program, "check", config, "--error-on-warnings", "--colors=off", folder]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder)


def test_scripts_styles_and_the_page_are_formatted_and_have_no_finding() -> None:
    done = check(PAGE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"Checked {len(SCRIPTS) + 2} files" in done.stdout + done.stderr


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_scripts_are_strict_small_and_make_no_html_of_text(script: Path) -> None:
    text = script.read_text()
    assert text.startswith('"use strict";\n')
    assert len(text.splitlines()) < 250
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|https?://", text)
