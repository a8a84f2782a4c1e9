"""Compare each action that .github uses with its tag on GitHub: the pinned commit must be the one of the tag.

    python3 scripts/check_pins.py

Needs git and no Python package, so that it can be the first command in a new repository. Changes nothing.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]

_USES = re.compile(r"\buses:\s*([\w.-]+/[\w.-]+)(?:/[\w./-]+)?@([0-9a-f]{40}) # (v[\w.-]+)")


class Pin(NamedTuple):
    """An action as workflows use it."""

    repository: str
    tag: str
    commit: str


def read_pins() -> list[Pin]:
    """Return every pinned action of the workflows and actions, each once."""
    found = [_USES.findall(path.read_text()) for path in ROOT.glob(".github/**/*.yml")]
    return sorted({Pin(repository, tag, commit) for pins in found for repository, commit, tag in pins})


def tagged_commit(pin: Pin) -> str:
    """Ask GitHub for the commit of a tag; empty without such a tag. Raises `CalledProcessError` if git fails."""
    # an annotated tag is an object with an id of its own: `^{}`, which git lists after it, has the commit
    refs = [f"refs/tags/{pin.tag}", f"refs/tags/{pin.tag}^{{}}"]
    done = subprocess.run(
        ["git", "ls-remote", f"https://github.com/{pin.repository}", *refs],
        env={**os.environ, "GIT_TERMINAL_PROMPT": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    commits = done.stdout.split()[::2]
    return commits[-1] if commits else ""


def why_wrong(pin: Pin) -> str:
    """Return what is wrong with a pinned action; empty if the commit is that of its tag."""
    try:
        commit = tagged_commit(pin)
    except subprocess.CalledProcessError as error:
        return f"git cannot read the tags: {' '.join(error.stderr.split())}"
    if not commit:
        return "no such tag"
    return "" if commit == pin.commit else f"pinned {pin.commit}, the tag is {commit}"


def main() -> int:
    wrong = 0
    pins = read_pins()
    for pin in pins:
        why = why_wrong(pin)
        wrong += bool(why)
        print(f"{'WRONG' if why else 'ok':6} {pin.repository} {pin.tag}  {why or pin.commit}", flush=True)
    if wrong or not pins:
        what = f"{wrong} of {len(pins)} are not the commit of their tag" if pins else "none in .github"
        print(f"error: pinned actions: {what}", file=sys.stderr)
        print("hint: run no workflow before each is the commit that you have read and trust", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
