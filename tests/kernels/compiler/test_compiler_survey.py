"""A survey lists the compiles of a build and runs none; done elsewhere, they give the objects of this machine."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_project import KERNELS, Project, make_project
from remote_server import RemoteServer, remote_server
from wheelfactory.core.errors import BuildError
from wheelfactory.core.progress import ignore_progress
from wheelfactory.core.strict import read_lines
from wheelfactory.kernels.compiler import survey as survey_module
from wheelfactory.kernels.compiler.costs import Ledger
from wheelfactory.kernels.compiler.ninja import NOT_LINKED
from wheelfactory.kernels.compiler.request import SURVEYED, CompileResult
from wheelfactory.kernels.compiler.store import ObjectRecord, Store
from wheelfactory.kernels.compiler.survey import Survey
from wheelfactory_remote.fill import fill_store, find_missing_kernels
from wheelfactory_remote.settings import parse_remote


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path)


def survey_of(project: Project, *targets: str, **environ: str) -> Survey:
    path = project.root / "survey.json"
    code, output = project.run(project.request(survey=str(path), targets=targets), **environ)
    assert code == NOT_LINKED, output
    assert project.report().state == SURVEYED
    return Survey.read(path)


def fill(survey: Survey, project: Project, server: RemoteServer) -> None:
    missing = find_missing_kernels(survey, project.kernels, Ledger())
    fill_store(survey, missing, parse_remote(server.url), ignore_progress)


def test_nothing_is_compiled_and_paths_are_relative_to_a_copy_that_other_hosts_see(project: Project) -> None:
    survey = survey_of(project)
    assert project.compiled() == []
    assert [part.targets for part in survey.parts] == [("gfx942",), ("host",)]
    assert sorted(survey.sources) == sorted(KERNELS)
    assert survey.headers == ("csrc/ck/include/ck.hpp",)
    assert survey.sources["fmha_bwd_api"] == "build/fmha_bwd_api.hip"
    assert not [word for part in survey.parts for word in part.command[1:] if str(project.root) in word]
    original = (project.root / "build/fmha_bwd_api.hip").read_bytes()
    shutil.rmtree(project.root / "csrc")
    shutil.rmtree(project.root / "build")
    assert Path(survey.root, survey.sources["fmha_bwd_api"]).read_bytes() == original
    assert Path(survey.root, survey.headers[0]).is_file()


def test_only_the_targets_of_the_request_are_listed(project: Project) -> None:
    assert [part.targets for part in survey_of(project, "host").parts] == [("host",)]
    code, output = project.run(project.request(survey=str(project.root / "survey.json"), targets=("gfx90a",)))
    assert code == NOT_LINKED
    assert "not a target of this build: gfx90a" in output


def test_a_kernel_without_code_for_an_arch_is_left_for_this_machine(project: Project) -> None:
    guarded = project.root / f"build/{KERNELS[0]}.hip"
    guarded.write_text("#if !defined(__HIP_DEVICE_COMPILE__) || (defined(__gfx12__))\n// code\n#endif\n")
    device, host = survey_of(project).parts
    assert {*device.key.sources} - {*device.sources} == {KERNELS[0]}
    assert host.sources == host.key.sources


def test_the_platform_changes_with_the_headers_of_rocm_and_the_compiler(project: Project) -> None:
    first = survey_of(project).worker_compiler
    header = project.hipcc.parents[1] / "include/hip/hip_runtime.h"
    header.parent.mkdir(parents=True)
    header.write_text("// hip\n")
    second = survey_of(project).worker_compiler
    project.hipcc.write_text(project.hipcc.read_text() + "\n# other\n")
    assert len({first, second, survey_of(project).worker_compiler}) == 3


def test_a_worker_prints_the_platform_of_its_compiler(project: Project) -> None:
    asked = [sys.executable, "-ISB", str(survey_module.__file__)]
    done = subprocess.run([*asked, str(project.hipcc)], capture_output=True, text=True)
    assert done.stdout == survey_of(project).worker_compiler + "\n"
    for arguments, message in (([], "give the path of hipcc"), (["/none/hipcc"], "cannot start the compiler: /none")):
        refused = subprocess.run([*asked, *arguments], capture_output=True, text=True)
        assert refused.returncode
        assert message in refused.stderr


def test_a_compiler_whose_objects_cannot_be_put_together_is_refused(project: Project) -> None:
    request = project.request(survey=str(project.root / "survey.json"))
    code, _ = project.run(request, HIPCC_CANNOT="bundle")
    assert code == NOT_LINKED
    with pytest.raises(BuildError, match="objects cannot be put together"):
        CompileResult.read(project.root / "result.json")


def test_the_build_finds_everything_in_the_store_and_has_the_objects_of_a_local_build(
    project: Project, tmp_path: Path
) -> None:
    with remote_server() as server:
        fill(survey_of(project), project, server)
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
        survey = survey_of(project, "gfx942")
        fill(survey, project, server)
        stored = Store(project.kernels, survey.parts[0].key).object_path(KERNELS[0])
        stored.chmod(0o644)
        stored.write_bytes(b"?")
        missing = find_missing_kernels(survey_of(project, "gfx942"), project.kernels, Ledger())
    assert [kernel.name for kernel in missing] == [KERNELS[0]]
