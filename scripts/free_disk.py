"""Free disk space on a GitHub-hosted runner (ubuntu-24.04): it has 14 GB, and ROCm images take 30 GB and more.

    sudo --preserve-env=RUNNER_ENVIRONMENT python3 scripts/free_disk.py

Removes large preinstalled software that this project does not use; does nothing on any other machine. Standard library
only and valid on Python 3.9, because it runs before anything is installed.
"""

import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor

UNUSED = {
    "/usr/local/lib/android": "Android SDK and NDK, 12 GB",
    "/usr/local/.ghcup": "Haskell, 5.5 GB",
    "/opt/hostedtoolcache/CodeQL": "CodeQL, 5 GB",
    "/usr/share/dotnet": ".NET, 2 to 4 GB",
    "/usr/share/swift": "Swift, 1.3 GB and more",
    "/usr/lib/jvm": "Java, 2 GB",
    "/usr/local/share/powershell": "PowerShell and its modules",
    "/usr/local/share/chromium": "Chromium",
    "/usr/local/share/vcpkg": "vcpkg",
    "/usr/share/miniconda": "conda",
    "/usr/lib/google-cloud-sdk": "command line of Google Cloud",
    "/opt/az": "command line of Azure",
    "/opt/google": "Chrome",
    "/opt/microsoft": "Edge and PowerShell",
    "/opt/hostedtoolcache/go": "Go",
    "/opt/hostedtoolcache/PyPy": "PyPy",
    "/opt/hostedtoolcache/Ruby": "Ruby",
    "/home/linuxbrew": "Homebrew",
    "/opt/ghc": "Haskell in earlier images",
    "/usr/local/share/boost": "Boost in earlier images",
}
"""Unused software by folder. Python of the tool cache, node and docker stay, because workflows use them.

Sizes: actions/runner-images#10386 (2024-08: android, ghcup, CodeQL), juicedata/juicefs-csi-driver#1451 (2025-12) and
guacsec/guac#2835 (2026-01: dotnet), argotorg/solc-bin#86 (2021: swift), grafana/beyla#2864 (2026-06: jvm). Folders
without a size are in lists of public workflows for ubuntu-24.04, such as mathio/gha-cleanup, which frees 30 GB;
peer-observer/peer-observer#447 (2026-05) measured 27 GiB.
"""

_GB = 1000**3


def free_disk(root, environ):
    """Remove the `UNUSED` folders below `root` on a GitHub-hosted runner, and return report lines.

    Skips folders that are links or below links, and folders that contain the running Python.
    """
    if environ.get("RUNNER_ENVIRONMENT") != "github-hosted":
        return ["not a GitHub-hosted runner: nothing removed"]
    root = os.path.realpath(root)
    paths = {os.path.join(root, name.lstrip("/")): name for name in UNUSED}
    existing = [path for path in paths if os.path.isdir(path)]
    skipped = {path: reason for path in existing if (reason := _why_kept(path))}
    before = shutil.disk_usage(root).free
    with ThreadPoolExecutor(4) as pool:  # threads, because removing files mostly waits for the disk
        results = dict(pool.map(_remove, [path for path in existing if path not in skipped]))
    lines = [
        f"{'removed' if results[path] else 'partly removed'}  {name} ({UNUSED[name]})"
        for path, name in paths.items()
        if path in results
    ]
    lines += [f"skipped  {paths[path]} ({reason})" for path, reason in skipped.items()]
    after = shutil.disk_usage(root).free
    return [*lines, f"freed {(after - before) / _GB:.1f} GB; {after / _GB:.1f} GB are free now"]


def _why_kept(path):
    """Why an existing folder must not be removed, or ""."""
    if os.path.realpath(path) != path:
        return "a link"
    inside = (sys.executable, sys.prefix, sys.base_prefix, __file__)
    if any(os.path.realpath(file).startswith(path + os.sep) for file in inside):
        return "contains the running Python"
    return ""


def _remove(path):
    """Remove a folder without following links; return it, and whether it is gone."""
    shutil.rmtree(path, ignore_errors=True)
    return path, not os.path.lexists(path)


if __name__ == "__main__":
    for line in free_disk("/", os.environ):
        print(line, flush=True)
