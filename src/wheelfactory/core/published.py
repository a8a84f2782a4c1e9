"""What the factory, its pages and the doctor all say about published wheels: address, order, verified, how to install.

Part of doctor.py, so it uses only the standard library of Python 3.9.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote

from wheelfactory.core.cell import Backend
from wheelfactory.core.gpus import arch_sort_key, without_features
from wheelfactory.core.label import Label

MANIFEST_NAME = "manifest.jsonl"
"""The file of a release that lists its wheels."""

WHEELS_FOLDER = "wheels"
"""The folder of a release with its wheels; on GitHub, each row has a URL instead."""

_VERSION = re.compile(
    r"(?P<release>\d+(?:\.\d+)*)(?:(?P<pre>a|b|rc)(?P<number>\d+))?(?:\.post(?P<post>\d+))?(?:\.dev(?P<dev>\d+))?"
)
_BUILD = re.compile("[^-]+-[^-]+-([0-9]+)([a-z]?)")
_RELEASE_NUMBERS = 6
_NEVER = 1 << 62

# what a gate checks, for the gates whose names mean nothing to a user
_GATE_TITLES = {"emulation": "numbers"}


def why_unverified(required: Collection[str], results: Iterable[tuple[str, str]]) -> str:
    """Return why a wheel is not verified, such as ``not checked: numbers``; empty if it is.

    A wheel is verified if no gate failed, and each `required` gate that it was published with passed (`added_later`
    has the others). `results` are pairs of a gate and ``passed``, ``failed`` or ``not run``.
    """
    statuses = dict(results)
    failed = [name for name, status in statuses.items() if status == "failed"]
    later = added_later(required, statuses)
    not_checked = [name for name in required if name not in later and statuses.get(name) not in ("passed", "failed")]
    problems = {"failed": failed, "not checked": not_checked}
    return "; ".join(f"{problem}: {name_gates(names)}" for problem, names in problems.items() if names)


def added_later(required: Collection[str], gates: Collection[str]) -> tuple[str, ...]:
    """Return the required gates that did not exist when a wheel was published with these gates; none without any."""
    return tuple(name for name in required if gates and name not in gates)


def name_gates(names: Iterable[str]) -> str:
    """Name gates by what they check, such as ``import, numbers``."""
    return ", ".join(_GATE_TITLES.get(name, name) for name in names)


def wheel_url(filename: str, url: str | None, base: str) -> str:
    """Return the address of a wheel: the `url` of its row, else a file below the release at `base`; empty: relative."""
    # quoted, because some servers read a + as a blank
    return url or "/".join(filter(None, (base.rstrip("/"), WHEELS_FOLDER, quote(filename))))


def names_local_file(url: str | None, base: str) -> bool:
    """Whether the `url` of a row is a file of this machine, though its manifest at `base` comes from elsewhere.

    Reject such a row: a site must not direct its readers to files of their machine.
    """
    return url is not None and url.startswith("file:") and not base.startswith("file:")


def is_amd_proof(vendor: object, dropped_launch_options: object) -> bool:
    """Whether evidence counts for AMD GPUs: it ran on one, outside the test mode for others, which drops options."""
    return vendor == "amd" and dropped_launch_options is None


def sort_proved_archs(archs: Iterable[str]) -> tuple[str, ...]:
    """Return the archs of proofs once each, in order and without features such as ``:xnack-``."""
    return tuple(sorted(set(map(without_features, archs)), key=arch_sort_key))


def version_key(version: str) -> tuple[int, ...]:
    """Return a sort key of integers: dev releases, then pre-releases, the release, post-releases (PEP 440).

    For the versions in a manifest, without the `packaging` library; a local version is ignored, other text sorts first.
    """
    found = _VERSION.match(version)
    if found is None:
        return ()
    numbers = [int(number) for number in found["release"].split(".")][:_RELEASE_NUMBERS]
    numbers += [0] * (_RELEASE_NUMBERS - len(numbers))
    is_dev = bool(found["dev"])
    phase = ("a", "b", "rc").index(found["pre"]) + 1 if found["pre"] else 0 if is_dev and not found["post"] else 4
    post = int(found["post"]) + 1 if found["post"] else 0
    return (*numbers, phase, int(found["number"] or 0), post, int(found["dev"]) if is_dev else _NEVER)


def build_key(filename: str) -> tuple[int, int]:
    """Return the build tag of a wheel's file name as installers sort it; (0, 0) for none.

    The first number comes from matrix.yaml; the second counts how often the wheel was replaced: ``-1b-`` is (1, 2).
    """
    found = _BUILD.match(filename)
    return (int(found[1]), ord(found[2]) - ord("a") + 1 if found[2] else 0) if found else (0, 0)


def best_first_key(label: Label, version: str, filename: str, published: datetime) -> tuple[object, ...]:
    """Return a sort key for wheels that a machine can use: CK before Triton, then the newest."""
    # CK is compiled ahead of time, Triton on first use
    newest = (*version_key(version), *label.torch, *label.rocm)
    build = tuple(-number for number in build_key(filename))
    return label.backend is not Backend.CK, tuple(-number for number in newest), build, -published.timestamp()


InstallCommand = tuple[str, ...]


@dataclass(frozen=True)
class Installer:
    """pip or uv: its commands and its names for the options that both have."""

    install_command: InstallCommand
    uninstall_command: InstallCommand
    index_option: str
    """The option that replaces the default index."""
    reinstall_option: str
    """The option that reinstalls an installed version."""

    def install_from_index(self, index: str, *requirements: str, options: Sequence[str] = ()) -> InstallCommand:
        """Install from one index only."""
        # with a second index, its torch could replace the installed one
        return (*self.install_command, *options, self.index_option, index, *requirements)

    def install_torch(self, *words: str, index: str) -> InstallCommand:
        """Install torch and its dependencies from an index that has all of them; `words` may begin with options."""
        return (*self.install_command, *words, self.index_option, index)

    def install_without_dependencies(self, *wheels: str, again: bool = False) -> InstallCommand:
        """Install only these wheels; with `again`, replace installed ones."""
        # the requirements of a wheel could replace the installed torch
        return (*self.install_command, "--no-deps", *((self.reinstall_option,) if again else ()), *wheels)


def pip_for(python: str = "") -> Installer:
    """The pip of a Python; by default the first pip on PATH."""
    program = (python, "-m", "pip") if python else ("pip",)
    return Installer((*program, "install"), (*program, "uninstall", "--yes"), "--index-url", "--force-reinstall")


def uv_for(python: str = "") -> Installer:
    """uv for a Python; by default for the active environment."""
    where = ("--python", python) if python else ()
    return Installer(
        ("uv", "pip", "install", *where), ("uv", "pip", "uninstall", *where), "--default-index", "--reinstall"
    )


def url_with_sha256(url: str, sha256: str) -> str:
    """Add a digest to a wheel's URL, which pip and uv then verify."""
    return f"{url}#sha256={sha256}"
