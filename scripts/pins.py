#!/usr/bin/env python3
"""Keep the versions of CI as .github/pins.yaml says: in workflows, composite actions and the npm packages of tests.

check  says what differs from pins.yaml or is pinned and not used, and ends with 1 if anything does
apply  writes the pins into the files
take   writes what the files say into pins.yaml, after a pull request of dependabot, then applies it everywhere
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

PINS = ".github/pins.yaml"

USES = re.compile(
    r"(?P<before>\buses:\s*)(?P<name>[\w.-]+/[\w./-]+)@(?P<commit>\S+)(?P<note>[ \t]+#[ \t]*(?P<version>\S+))?"
)
PYTHON = re.compile(r"(?P<before>^\s*python-version:\s*)'(?P<version>[\d.]+)'", re.MULTILINE)
RUNNER = re.compile(r"\bubuntu-(?:\d\d\.\d\d(?:-arm)?|latest)\b")


class PinsError(Exception):
    """Pins that cannot be understood or taken."""


@dataclass(frozen=True)
class Action:
    """The version of an action for people, and the commit that is used."""

    version: str
    commit: str


@dataclass(frozen=True)
class Pins:
    """All that pins.yaml says."""

    runners: tuple[str, ...]
    python: str
    actions: Mapping[str, Action]
    npm: Mapping[str, str]


def read_pins(text: str) -> Pins:
    """Pins from the text of pins.yaml. Raises `PinsError`."""
    try:
        content = yaml.safe_load(text)
        actions = {name: Action(one["version"], one["commit"]) for name, one in content["actions"].items()}
        npm = {name: str(version) for name, version in content["npm"].items()}
        pins = Pins(tuple(content["runners"]), content["python"], actions, npm)
    except (KeyError, TypeError, AttributeError, yaml.YAMLError) as error:
        raise PinsError(f"{PINS} cannot be read: {error!r}") from None
    for name, action in actions.items():
        if not re.fullmatch(r"[0-9a-f]{40}", action.commit) or not re.fullmatch(r"v\d+\.\d+\.\d+", action.version):
            raise PinsError(f"{PINS}: {name}: a version is vX.Y.Z, a commit is 40 hex digits")
    return pins


def workflow_differences(text: str, pins: Pins) -> Iterator[str]:
    """What differs from the pins in a workflow or action."""
    for used in USES.finditer(text):
        pinned = pins.actions.get(used["name"])
        if pinned is None:
            yield f"{used['name']} is not pinned"
        elif (used["commit"], used["version"]) != (pinned.commit, pinned.version):
            found = f"{used['commit']} # {used['version']}"
            yield f"{used['name']} is {found}, and pinned as {pinned.commit} # {pinned.version}"
    for used in PYTHON.finditer(text):
        if used["version"] != pins.python:
            yield f"python-version is {used['version']}, and pinned as {pins.python}"
    for label in sorted(set(RUNNER.findall(text)) - set(pins.runners)):
        yield f"the runner {label} is not pinned"


def workflow_applied(text: str, pins: Pins) -> str:
    """A workflow or action with the pins written into it. A runner is only replaced where there is one to choose."""

    def action(used: re.Match[str]) -> str:
        pinned = pins.actions.get(used["name"])
        return f"{used['before']}{used['name']}@{pinned.commit} # {pinned.version}" if pinned else used[0]

    text = PYTHON.sub(lambda used: f"{used['before']}'{pins.python}'", USES.sub(action, text))
    return RUNNER.sub(pins.runners[0], text) if len(pins.runners) == 1 else text


def package_differences(text: str, lock: str, pins: Pins) -> Iterator[str]:
    """What differs from the pins in a package.json, and from that in its package-lock.json."""
    wanted = json.loads(text)["dependencies"]
    for name, version in wanted.items():
        if pins.npm.get(name) != version:
            yield f"{name} is {version}, and pinned as {pins.npm.get(name)}"
    if json.loads(lock)["packages"][""].get("dependencies") != wanted:
        yield "package-lock.json is of another package.json: run `npm install --package-lock-only` beside it"


def package_applied(text: str, pins: Pins) -> str:
    """A package.json with the pins written into it."""
    content = json.loads(text)
    content["dependencies"] = {name: pins.npm.get(name, version) for name, version in content["dependencies"].items()}
    return json.dumps(content, indent=2) + "\n"


def unused(texts: Mapping[str, str], pins: Pins) -> Iterator[str]:
    """What is pinned and used nowhere."""
    everything = "\n".join(texts.values())
    used = {one["name"] for one in USES.finditer(everything)}
    names = {
        name for path, text in texts.items() if path.endswith(".json") for name in json.loads(text)["dependencies"]
    }
    runners = set(RUNNER.findall(everything))
    for name in (*sorted(pins.actions.keys() - used), *sorted(pins.npm.keys() - names)):
        yield f"{name} is pinned and used nowhere"
    for name in sorted(set(pins.runners) - runners):
        yield f"the runner {name} is pinned and used nowhere"


def taken(pins_text: str, texts: Mapping[str, str]) -> str:
    """pins.yaml with what the files have in place of its own. Raises `PinsError` where they have several new ones."""
    pins = read_pins(pins_text)
    for name, old in pins.actions.items():
        for version, commit in _new(name, {(old.version, old.commit)}, _used(name, texts)):
            pattern = rf"(  {re.escape(name)}:\n    version: ){old.version}(\n    commit: ){old.commit}\n    source: .*"
            pins_text = _replaced(pins_text, pattern, rf"\g<1>{version}\g<2>{commit}\n    source: dependabot")
    for name, version in pins.npm.items():
        for (new,) in _new(name, {(version,)}, _installed(name, texts)):
            pins_text = _replaced(pins_text, rf"(  '?{re.escape(name)}'?: ){re.escape(version)}\n", rf"\g<1>{new}\n")
    return pins_text


def _used(name: str, texts: Mapping[str, str]) -> set[tuple[str, ...]]:
    every = (used for text in texts.values() for used in USES.finditer(text))
    return {(used["version"], used["commit"]) for used in every if used["name"] == name}


def _installed(name: str, texts: Mapping[str, str]) -> set[tuple[str, ...]]:
    every = (json.loads(text)["dependencies"] for path, text in texts.items() if path.endswith(".json"))
    return {(wanted[name],) for wanted in every if name in wanted}


def _new(name: str, old: set[tuple[str, ...]], found: set[tuple[str, ...]]) -> set[tuple[str, ...]]:
    new = found - old
    if len(new) > 1:
        raise PinsError(f"{name} has several new versions: {sorted(new)}")
    return new


def _replaced(text: str, pattern: str, new: str) -> str:
    text, times = re.subn(pattern, new, text)
    if times != 1:
        raise PinsError(f"{PINS} is not written as expected: {pattern}")
    return text


def read_texts(root: Path) -> dict[str, str]:
    """The files that pins go into, by their paths."""
    patterns = (".github/workflows/*.yml", ".github/actions/*/action.yml", "tests/npm/*/package.json")
    return {
        str(path.relative_to(root)): path.read_text() for pattern in patterns for path in sorted(root.glob(pattern))
    }


def check(root: Path) -> list[str]:
    """All that differs in a tree."""
    pins, texts = read_pins((root / PINS).read_text()), read_texts(root)
    found = [f"{PINS}: {said}" for said in unused(texts, pins)]
    for path, text in texts.items():
        if path.endswith(".json"):
            said = package_differences(text, (root / path).with_name("package-lock.json").read_text(), pins)
        else:
            said = workflow_differences(text, pins)
        found += [f"{path}: {one}" for one in said]
    return found


def apply(root: Path) -> None:
    """Write the pins into the files of a tree."""
    pins = read_pins((root / PINS).read_text())
    for path, text in read_texts(root).items():
        new = package_applied(text, pins) if path.endswith(".json") else workflow_applied(text, pins)
        if new != text:
            (root / path).write_text(new)


def take(root: Path) -> None:
    """Write what the files of a tree have into its pins.yaml, then into all of them."""
    (root / PINS).write_text(taken((root / PINS).read_text(), read_texts(root)))
    apply(root)


def main(arguments: list[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("check", "apply", "take"))
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent, help="the tree")
    options = parser.parse_args(arguments)
    try:
        if options.what != "check":
            (apply if options.what == "apply" else take)(options.root)
        found = check(options.root)
    except (PinsError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for one in found:
        print(one)
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
