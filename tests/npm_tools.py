"""npm packages for tests, pinned by tests/npm/*/package-lock.json, downloaded once and cached."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import NoReturn

import pytest

from wheelfactory.core.files import scratch_dir

PINS = Path(__file__).parent / "npm"
"""Folders with a package.json and its package-lock.json; each is installed as a whole."""

ONE_FILE = {"@octokit/openapi": "generated/api.github.com.json"}
"""Packages to extract a single file from: this one has 400 MB, its file 13 MB."""

SECONDS = 300


def npm_package(name: str) -> Path:
    """Return the folder of an installed package, with its dependencies beside it.

    Skips the test if the package cannot be installed; fails it if WORKFLOW_TOOLS is ``required``.
    """
    pins = next(folder for folder in sorted(PINS.iterdir()) if name in _wanted(folder))
    kept = _cache() / f"npm-{_digest(pins)}"
    if not kept.exists():
        reason = _install(pins, kept)
        if reason:
            _skip_or_fail(f"npm package {name}: {reason}")
    return kept / "node_modules" / name


def node() -> str:
    """Return the path of Node.js; skips or fails the test without it, like `npm_package`."""
    return shutil.which("node") or _skip_or_fail("needs node")


def _skip_or_fail(reason: str) -> NoReturn:
    if os.environ.get("WORKFLOW_TOOLS") == "required":
        pytest.fail(reason)
    pytest.skip(reason)


def _wanted(pins: Path) -> dict[str, str]:
    wanted: dict[str, str] = json.loads((pins / "package.json").read_text())["dependencies"]
    return wanted


def _digest(pins: Path) -> str:
    return hashlib.sha256((pins / "package-lock.json").read_bytes()).hexdigest()[:16]


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "wheelfactory"


def _install(pins: Path, kept: Path) -> str | None:
    """Install into `kept`, atomically. Return why that failed, or None."""
    if not shutil.which("npm"):
        return "needs npm"
    kept.parent.mkdir(parents=True, exist_ok=True)
    with scratch_dir(kept.parent) as scratch:
        try:
            for name in ("package.json", "package-lock.json"):
                shutil.copy(pins / name, scratch)
            partly = [name for name in _wanted(pins) if name in ONE_FILE]
            if partly:
                _extract_one_file(partly[0], scratch)
            else:
                _npm(scratch, "ci", "--ignore-scripts", "--no-audit", "--no-fund")
        except subprocess.CalledProcessError as error:
            return f"{' '.join(map(str, error.cmd))} failed: {error.stderr.strip()[-500:]}"
        except subprocess.TimeoutExpired:
            return f"npm did not end within {SECONDS} seconds"
        (scratch / "done").mkdir()
        (scratch / "node_modules").rename(scratch / "done/node_modules")
        with contextlib.suppress(OSError):  # another process was faster; its copy is the same
            (scratch / "done").rename(kept)
    return None


def _extract_one_file(name: str, scratch: Path) -> None:
    """Download a package, verify it against the lock file, and extract its file."""
    locked = json.loads((scratch / "package-lock.json").read_text())["packages"][f"node_modules/{name}"]
    packed = scratch / _npm(scratch, "pack", "--silent", f"{name}@{locked['version']}").strip()
    with packed.open("rb") as file:
        found = base64.b64encode(hashlib.sha512(file.read()).digest()).decode()
    assert f"sha512-{found}" == locked["integrity"], f"{name} does not match the lock file"
    wanted = scratch / "node_modules" / name / ONE_FILE[name]
    wanted.parent.mkdir(parents=True)
    with tarfile.open(packed) as tar:
        member = tar.extractfile(f"package/{ONE_FILE[name]}")
        assert member
        wanted.write_bytes(member.read())


def _npm(folder: Path, *arguments: str) -> str:
    environ = {**os.environ, "npm_config_cache": str(folder / "cache"), "npm_config_update_notifier": "false"}
    done = subprocess.run(
        ["npm", *arguments], cwd=folder, env=environ, capture_output=True, text=True, check=True, timeout=SECONDS
    )
    return done.stdout
