"""One file for every pin, and everything that uses one agrees with it."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml

TREE = Path(__file__).parents[2]
SCRIPT = TREE / "scripts/pins.py"


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pins_script", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


pins = load()

OLD, NEW, OTHER = "a" * 40, "b" * 40, "c" * 40

WORKFLOW = f"""jobs:
  one:
    runs-on: ubuntu-24.04
    steps:
      - uses: actions/checkout@{OLD} # v1.0.0
      - uses: actions/setup-python@{OLD} # v2.0.0
        with:
          python-version: '3.12'
      - uses: ./.github/actions/setup
"""
PINS = f"""# a comment that stays
runners:
  - ubuntu-24.04
python: '3.12'
actions:
  actions/checkout:
    version: v1.0.0
    commit: {OLD}
    source: somewhere
  actions/setup-python:
    version: v2.0.0
    commit: {OLD}
    source: elsewhere
npm:
  '@some/tool': 1.2.3
"""
PACKAGE = json.dumps({"dependencies": {"@some/tool": "1.2.3"}}, indent=2) + "\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in {
        ".github/pins.yaml": PINS,
        ".github/workflows/one.yml": WORKFLOW,
        ".github/actions/two/action.yml": f"runs:\n  steps:\n    - uses: actions/checkout@{OLD} # v1.0.0\n",
        "tests/npm/tools/package.json": PACKAGE,
        "tests/npm/tools/package-lock.json": json.dumps({"packages": {"": json.loads(PACKAGE)}}),
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def edit(tree: Path, name: str, old: str, new: str) -> None:
    text = (tree / name).read_text()
    assert old in text
    (tree / name).write_text(text.replace(old, new))


def test_our_files_use_what_is_pinned_and_all_of_it() -> None:
    assert pins.check(TREE) == []


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        (".github/workflows/one.yml", f"checkout@{OLD}", f"checkout@{NEW}", "and pinned as"),
        (".github/workflows/one.yml", f"checkout@{OLD} # v1.0.0", "checkout@v1", "and pinned as"),
        (".github/workflows/one.yml", "# v1.0.0", "# v1.0.1", "and pinned as"),
        (".github/workflows/one.yml", " # v1.0.0", "", "and pinned as"),
        (".github/workflows/one.yml", "actions/checkout", "actions/cache", "actions/cache is not pinned"),
        (".github/workflows/one.yml", "'3.12'", "'3.13'", "python-version is 3.13"),
        (".github/workflows/one.yml", "ubuntu-24.04", "ubuntu-latest", "runner ubuntu-latest is not pinned"),
        (".github/actions/two/action.yml", OLD, NEW, "and pinned as"),
        ("tests/npm/tools/package.json", "1.2.3", "1.2.4", "@some/tool is 1.2.4"),
        ("tests/npm/tools/package-lock.json", "1.2.3", "1.2.4", "of another package.json"),
        (".github/pins.yaml", "'@some/tool'", "'@other/tool'", "@other/tool is pinned and used nowhere"),
        (
            ".github/pins.yaml",
            "  - ubuntu-24.04",
            "  - ubuntu-24.04\n  - ubuntu-22.04",
            "runner ubuntu-22.04 is pinned",
        ),
    ],
)
def test_what_differs_is_said(tree: Path, name: str, old: str, new: str, said: str) -> None:
    assert pins.check(tree) == []
    edit(tree, name, old, new)
    assert any(said in one for one in pins.check(tree)), pins.check(tree)


def test_an_action_that_is_pinned_and_not_used_is_said(tree: Path) -> None:
    edit(tree, ".github/workflows/one.yml", f"      - uses: actions/setup-python@{OLD} # v2.0.0\n", "")
    assert pins.check(tree) == [".github/pins.yaml: actions/setup-python is pinned and used nowhere"]


def test_pins_are_written_everywhere(tree: Path) -> None:
    edit(tree, ".github/pins.yaml", f"v1.0.0\n    commit: {OLD}", f"v1.5.0\n    commit: {NEW}")
    edit(tree, ".github/pins.yaml", "'3.12'", "'3.14'")
    edit(tree, ".github/pins.yaml", "ubuntu-24.04", "ubuntu-26.04")
    edit(tree, ".github/pins.yaml", "1.2.3", "1.3.0")
    pins.apply(tree)
    assert (tree / ".github/workflows/one.yml").read_text() == (
        WORKFLOW.replace(f"checkout@{OLD} # v1.0.0", f"checkout@{NEW} # v1.5.0")
        .replace("3.12", "3.14")
        .replace("ubuntu-24.04", "ubuntu-26.04")
    )
    assert (tree / "tests/npm/tools/package.json").read_text() == PACKAGE.replace("1.2.3", "1.3.0")
    assert [one for one in pins.check(tree) if "package-lock" not in one] == []


def test_what_dependabot_changed_in_one_file_is_taken_over_into_all(tree: Path) -> None:
    edit(tree, ".github/workflows/one.yml", f"checkout@{OLD} # v1.0.0", f"checkout@{NEW} # v1.5.0")
    edit(tree, "tests/npm/tools/package.json", "1.2.3", "1.3.0")
    edit(tree, "tests/npm/tools/package-lock.json", "1.2.3", "1.3.0")
    pins.take(tree)
    assert pins.check(tree) == []
    assert f"checkout@{NEW} # v1.5.0" in (tree / ".github/actions/two/action.yml").read_text()
    text = (tree / ".github/pins.yaml").read_text()
    assert text == PINS.replace(
        f"v1.0.0\n    commit: {OLD}\n    source: somewhere", f"v1.5.0\n    commit: {NEW}\n    source: dependabot"
    ).replace("1.2.3", "1.3.0")


def test_two_new_versions_of_one_action_are_refused(tree: Path) -> None:
    edit(tree, ".github/workflows/one.yml", f"checkout@{OLD}", f"checkout@{NEW}")
    edit(tree, ".github/actions/two/action.yml", OLD, OTHER)
    with pytest.raises(pins.PinsError, match="several new versions"):
        pins.take(tree)


@pytest.mark.parametrize(("old", "new"), [(OLD, "v1"), ("v1.0.0", "v1"), ("npm:", "other:"), ("actions:", "action:")])
def test_pins_that_are_no_pins_are_refused(tree: Path, old: str, new: str) -> None:
    edit(tree, ".github/pins.yaml", old, new)
    done = subprocess.run([sys.executable, SCRIPT, "check", "--root", tree], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("error: .github/pins.yaml")


def test_the_command_says_what_differs_and_writes_what_it_is_told_to(tree: Path) -> None:
    edit(tree, ".github/workflows/one.yml", "'3.12'", "'3.13'")

    def run(what: str) -> tuple[int, str]:
        done = subprocess.run([sys.executable, SCRIPT, what, "--root", tree], capture_output=True, text=True)
        return done.returncode, done.stdout

    assert run("check") == (1, ".github/workflows/one.yml: python-version is 3.13, and pinned as 3.12\n")
    assert run("apply") == (0, "")
    assert run("check") == (0, "")


def test_dependabot_looks_after_everything_that_is_pinned_and_waits_a_week() -> None:
    config = yaml.safe_load((TREE / ".github/dependabot.yml").read_text())
    watched = {one["package-ecosystem"]: one.get("directories", [one.get("directory")]) for one in config["updates"]}
    assert watched.keys() == {"github-actions", "pip", "npm"}
    assert watched["npm"] == [
        f"/{path.parent.relative_to(TREE)}" for path in sorted(TREE.glob("tests/npm/*/package.json"), reverse=True)
    ]
    assert all(one["cooldown"]["default-days"] >= 7 for one in config["updates"])


def test_lock_files_name_no_place_and_a_digest_for_everything() -> None:
    for path in TREE.glob("tests/npm/*/package-lock.json"):
        packages = {name: one for name, one in json.loads(path.read_text())["packages"].items() if name}
        assert packages
        assert all("resolved" not in one and one["integrity"].startswith("sha512-") for one in packages.values())


def test_python_packages_are_pinned_in_constraints_by_equality() -> None:
    lines = [line for line in (TREE / "constraints.txt").read_text().splitlines() if line and not line.startswith("#")]
    assert lines
    assert all("==" in line for line in lines)
