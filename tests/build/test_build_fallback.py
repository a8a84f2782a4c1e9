"""The fallback's own tests, with the CPU build of torch: they run once, and each of their files is a test here."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from wheelfactory.build.environments import make_build_environment

PACKAGE = Path(__file__).parents[2] / "packages/flash_attention_amd"

FILES = sorted(path.stem for path in (PACKAGE / "tests").glob("test_*.py"))

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def outcomes(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Sequence[ElementTree.Element]]:
    """What pytest reports of each test, by file."""
    report = tmp_path_factory.mktemp("fallback") / "report.xml"
    packages = make_build_environment(cache).site_packages
    done = subprocess.run(
        [
            sys.executable,
            "-B",
            "-m",
            "pytest",
            "-q",
            "-c",
            PACKAGE / "tests/pytest.ini",
            f"--junitxml={report}",
            PACKAGE / "tests",
        ],
        env={
            "PYTHONPATH": f"{PACKAGE / 'src'}:{packages}",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "OMP_NUM_THREADS": "1",
            "PATH": os.environ["PATH"],  # torch's compiler looks for g++ there
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr  # pytest: 0 all passed, 1 some failed
    found: dict[str, list[ElementTree.Element]] = {}
    for case in ElementTree.parse(report).iter("testcase"):  # noqa: S314  # written by pytest just now
        found.setdefault(case.attrib["classname"].rpartition(".")[2], []).append(case)
    return found


@pytest.mark.parametrize("name", FILES)
def test_the_package_passes_its_own_tests(name: str, outcomes: Mapping[str, Sequence[ElementTree.Element]]) -> None:
    cases = outcomes[name]
    wrong = [
        f"{case.attrib['name']}: {fault.text}"
        for case in cases
        for fault in (*case.iter("failure"), *case.iter("error"))
    ]
    assert not wrong, "\n\n".join(wrong)
    assert len([case for case in cases if case.find("skipped") is None]) > 3
