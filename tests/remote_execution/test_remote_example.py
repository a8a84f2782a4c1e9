"""The compose file in examples/cluster agrees with the files beside it, and with what tests run without containers."""

from __future__ import annotations

import re
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import pytest
import yaml

from remote_cluster import EXAMPLE, PACKAGES
from wheelfactory.core.files import ROOT

HADOLINT = Path(sysconfig.get_path("scripts"), "hadolint")


@pytest.fixture
def compose() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((EXAMPLE / "compose.yaml").read_text())
    return document


def test_the_server_has_the_packages_that_the_tests_run() -> None:
    (line,) = [line for line in (EXAMPLE / "server.Dockerfile").read_text().splitlines() if line.startswith("RUN")]
    assert tuple(line.split()[-len(PACKAGES) :]) == PACKAGES


def test_the_migrated_database_is_the_one_that_the_server_uses(compose: dict[str, Any]) -> None:
    (used,) = re.findall("connection-string: '(.+)'", (EXAMPLE / "buildgrid.yml").read_text())
    assert f"bgd migrate apply {used};" in compose["services"]["server"]["command"]
    name, host, base = re.fullmatch(r"postgresql\+psycopg2://(\w+)@(\w+):5432/(\w+)", used).groups()  # type: ignore[union-attr]
    environment = compose["services"][host]["environment"]
    assert (environment["POSTGRES_USER"], environment["POSTGRES_DB"]) == (name, base)


def test_workers_reach_the_port_on_which_the_server_listens(compose: dict[str, Any]) -> None:
    (port,) = re.findall(r"address: '0\.0\.0\.0:(\d+)'", (EXAMPLE / "buildgrid.yml").read_text())
    assert compose["services"]["server"]["ports"] == [f"{port}:{port}"]
    assert f"${{SERVER:-http://server:{port}}}" in compose["services"]["worker"]["command"]


def test_every_mount_exists_or_is_a_declared_volume(compose: dict[str, Any]) -> None:
    mounts = [mount.split(":")[0] for service in compose["services"].values() for mount in service.get("volumes", [])]
    folders, volumes = ([name for name in mounts if name.startswith(".") == kind] for kind in (True, False))
    assert {*volumes} == compose["volumes"].keys()
    assert len(folders) == 2
    assert all((EXAMPLE / folder).exists() for folder in folders)


def test_the_worker_runs_programs_of_this_repository_with_all_arguments(compose: dict[str, Any]) -> None:
    command = compose["services"]["worker"]["command"]
    for path in re.findall(r"/factory/(\S+)", command):
        assert (ROOT / path).is_file(), path
    (usage,) = re.findall(r"worker\.sh ([A-Z_ ]+)$", (EXAMPLE / "worker.sh").read_text(), re.MULTILINE)
    given = re.sub(r"\$\$\([^)]+\)", "measured", command).rstrip("'").partition("worker.sh ")[2]
    assert len(given.split()) == len(usage.split())


def test_hadolint_finds_nothing_but_the_version_of_a_package_of_a_moving_suite() -> None:
    dockerfiles = sorted(EXAMPLE.glob("*.Dockerfile"))
    assert len(dockerfiles) == 2
    done = subprocess.run([HADOLINT, "--no-color", "--ignore", "DL3008", *dockerfiles], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")
