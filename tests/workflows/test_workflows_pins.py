"""Every version in CI is pinned, the same everywhere, and watched by Dependabot."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml

TREE = Path(__file__).parents[2]
WORKFLOWS = sorted([*TREE.glob(".github/workflows/*.yml"), *TREE.glob(".github/actions/*/action.yml")])

USES = re.compile(r"\buses:\s*([\w.-]+/[\w./-]+)@(.+)")
PYTHON = re.compile(r"\b(python-version):\s*('[\d.]+')")
IMAGE = re.compile(r"\b(debian:\w+)(@sha256:[0-9a-f]{64})?")
RUNNER = re.compile(r"\b(ubuntu)-(latest|\d\d\.\d\d(?:-arm)?)")


def test_each_action_python_and_runner_has_one_version() -> None:
    versions: dict[str, set[str]] = {}
    for path in WORKFLOWS:
        for pattern in (USES, PYTHON, IMAGE, RUNNER):
            for name, version in pattern.findall(path.read_text()):
                versions.setdefault(name, set()).add(version)
    assert {"actions/checkout", "python-version", "ubuntu"} <= versions.keys()
    assert {name: found for name, found in versions.items() if len(found) > 1} == {}


def test_actions_are_pinned_by_commit_with_their_version_for_dependabot_and_images_by_digest() -> None:
    texts = [path.read_text() for path in WORKFLOWS]
    lines = [line for text in texts for line in text.splitlines() if re.search(r"\buses:(?! \./)", line)]
    assert lines
    assert [line for line in lines if not re.search(r"uses: [\w./-]+@[0-9a-f]{40}\b.* # v\d+\.\d+\.\d+$", line)] == []
    images = [image for text in texts for image in IMAGE.findall(text)]
    assert images
    assert all(digest for _, digest in images)


def test_dependabot_watches_every_folder_with_pins_and_waits_a_week() -> None:
    config = yaml.safe_load((TREE / ".github/dependabot.yml").read_text())
    watched = {one["package-ecosystem"]: one.get("directories", [one.get("directory")]) for one in config["updates"]}
    packages = {f"/{path.parent.relative_to(TREE)}" for path in TREE.glob("tests/npm/*/package.json")}
    assert watched.keys() == {"github-actions", "npm"}
    assert watched["github-actions"] == ["/", "/.github/actions/*"]
    assert set(watched["npm"]) == packages
    assert all(one["cooldown"]["default-days"] >= 7 for one in config["updates"])
    for path in TREE.glob("tests/npm/*/package-lock.json"):
        locked = {name: one for name, one in json.loads(path.read_text())["packages"].items() if name}
        assert locked
        assert all("resolved" not in one and one["integrity"].startswith("sha512-") for one in locked.values())
