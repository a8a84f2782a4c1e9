"""Compiles that a server has done give the objects of this machine, which links them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_project import KERNELS, Project, make_project
from remote_server import RemoteServer, remote_server
from wheelfactory.core.progress import ignore_progress
from wheelfactory.core.strict import read_lines
from wheelfactory.kernels.compiler.costs import Ledger
from wheelfactory.kernels.compiler.store import ObjectRecord, Store
from wheelfactory.kernels.compiler.survey import Survey
from wheelfactory_remote.cluster import fill_store
from wheelfactory_remote.kernels import find_missing_kernels
from wheelfactory_remote.server import parse_remote


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path)


def fill(survey: Survey, project: Project, server: RemoteServer) -> None:
    missing = find_missing_kernels(survey, project.kernels, Ledger())
    fill_store(survey, missing, parse_remote(server.url), ignore_progress)


def test_the_build_finds_everything_in_the_store_and_has_the_objects_of_a_local_build(
    project: Project, tmp_path: Path
) -> None:
    with remote_server() as server:
        fill(project.survey(), project, server)
    code, output = project.run()
    assert code == 0, output
    assert project.sources() == ["flash_api"]
    entries = [entry for path in project.kernels.glob("*/journal.jsonl") for entry in read_lines(ObjectRecord, path)]
    assert {entry.made_by for entry in entries} == {"worker1"}
    local = make_project(tmp_path, "local", kernels=tmp_path / "other")
    assert local.run()[0] == 0
    for name in KERNELS:
        assert project.output(name).read_bytes() == local.output(name).read_bytes()


def test_a_damaged_object_is_filled_again(project: Project) -> None:
    with remote_server() as server:
        survey = project.survey("gfx942")
        fill(survey, project, server)
        stored = Store(project.kernels, survey.parts[0].key).object_path(KERNELS[0])
        stored.chmod(0o644)
        stored.write_bytes(b"?")
        missing = find_missing_kernels(project.survey("gfx942"), project.kernels, Ledger())
    assert [kernel.name for kernel in missing] == [KERNELS[0]]
