"""Every version in CI is pinned, the same everywhere, and watched by Dependabot."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import yaml

TREE = Path(__file__).parents[2]
WORKFLOWS = sorted([*TREE.glob(".github/workflows/*.yml"), *TREE.glob(".github/actions/*/action.yml")])

USES = re.compile(r"\buses:\s*([\w.-]+/[\w./-]+)@(.+)")
PYTHON = re.compile(r"\b(python-version):\s*('[\d.]+')")
IMAGE = re.compile(r"\b(debian:\w+)(@sha256:[0-9a-f]{64})?")
RUNNER = re.compile(r"\b(ubuntu)-(latest|\d\d\.\d\d(?:-arm)?)")


def pins(text: str) -> Iterator[tuple[str, str]]:
    """Yield each action, Python, image and runner with its version, from workflows and actions."""
    for pattern in (USES, PYTHON, IMAGE, RUNNER):
        yield from pattern.findall(text)


def pinned_differently(texts: Iterable[str]) -> Mapping[str, set[str]]:
    """Return the names with several versions, and the versions."""
    versions: dict[str, set[str]] = {}
    for text in texts:
        for name, version in pins(text):
            versions.setdefault(name, set()).add(version)
    return {name: found for name, found in versions.items() if len(found) > 1}


def test_each_action_python_and_runner_has_one_version() -> None:
    texts = [path.read_text() for path in WORKFLOWS]
    assert {"actions/checkout", "python-version", "ubuntu"} <= {name for text in texts for name, _ in pins(text)}
    assert pinned_differently(texts) == {}


def test_actions_are_pinned_by_commit_and_tell_dependabot_their_version() -> None:
    lines = [
        line for path in WORKFLOWS for line in path.read_text().splitlines() if re.search(r"\buses:(?! \./)", line)
    ]
    assert lines
    assert [line for line in lines if not re.search(r"uses: [\w./-]+@[0-9a-f]{40}\b.* # v\d+\.\d+\.\d+$", line)] == []


def test_images_are_pinned_by_digest() -> None:
    images = [image for path in WORKFLOWS for image in IMAGE.findall(path.read_text())]
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


def test_lock_files_have_digests_and_no_addresses() -> None:
    for path in TREE.glob("tests/npm/*/package-lock.json"):
        packages = {name: one for name, one in json.loads(path.read_text())["packages"].items() if name}
        assert packages
        assert all("resolved" not in one and one["integrity"].startswith("sha512-") for one in packages.values())
