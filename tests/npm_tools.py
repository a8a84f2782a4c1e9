"""npm packages for tests: exactly those of tests/npm/*/package-lock.json, fetched once and kept in the cache."""

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
"""A folder for each set of packages that is installed together: package.json, and package-lock.json with digests."""

ONE_FILE = {"@octokit/openapi": "generated/api.github.com.json"}
"""Packages of which one file is taken: this one has 400 MB, of which that file is 13."""

SECONDS = 300


def npm_package(name: str) -> Path:
    """The folder of an installed package, with what it needs beside it.

    Where it cannot be had the test is skipped with the reason, or fails if WORKFLOW_TOOLS is ``required``.
    """
    pins = next(folder for folder in sorted(PINS.iterdir()) if name in _wanted(folder))
    kept = _cache() / f"npm-{_digest(pins)}"
    if not kept.exists():
        reason = _install(pins, kept)
        if reason:
            _cannot(f"npm package {name}: {reason}")
    return kept / "node_modules" / name


def node() -> str:
    """The program that runs JavaScript; without one, as `npm_package`."""
    return shutil.which("node") or _cannot("needs node")


def _cannot(reason: str) -> NoReturn:
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
    """Make `kept` in one step. Gives why that cannot be, or None."""
    if not shutil.which("npm"):
        return "needs npm"
    kept.parent.mkdir(parents=True, exist_ok=True)
    with scratch_dir(kept.parent) as scratch:
        try:
            for name in ("package.json", "package-lock.json"):
                shutil.copy(pins / name, scratch)
            partly = [name for name in _wanted(pins) if name in ONE_FILE]
            if partly:
                _take_one_file(partly[0], scratch)
            else:
                _npm(scratch, "ci", "--ignore-scripts", "--no-audit", "--no-fund")
        except subprocess.CalledProcessError as error:
            return f"{' '.join(map(str, error.cmd))} failed: {error.stderr.strip()[-500:]}"
        except subprocess.TimeoutExpired:
            return f"npm did not end within {SECONDS} seconds"
        (scratch / "done").mkdir()
        (scratch / "node_modules").rename(scratch / "done/node_modules")
        with contextlib.suppress(OSError):  # another run was faster; both hold the same
            (scratch / "done").rename(kept)
    return None


def _take_one_file(name: str, scratch: Path) -> None:
    """Fetch a package, hold it to the digest of the lock file, and unpack the one file."""
    locked = json.loads((scratch / "package-lock.json").read_text())["packages"][f"node_modules/{name}"]
    packed = scratch / _npm(scratch, "pack", "--silent", f"{name}@{locked['version']}").strip()
    with packed.open("rb") as file:
        found = base64.b64encode(hashlib.sha512(file.read()).digest()).decode()
    assert f"sha512-{found}" == locked["integrity"], f"{name} is not what the lock file says"
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
