"""A survey lists the compiles of a build and runs none."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_project import KERNELS, Project, make_project
from wheelfactory.core.errors import BuildError
from wheelfactory.kernels.compiler import survey as survey_module
from wheelfactory.kernels.compiler.ninja import NOT_LINKED
from wheelfactory.kernels.compiler.request import CompileResult


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path)


def test_nothing_is_compiled_and_paths_are_relative_to_a_copy_that_other_hosts_see(project: Project) -> None:
    survey = project.survey()
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
    assert [part.targets for part in project.survey("host").parts] == [("host",)]
    code, output = project.run(project.request(survey=str(project.root / "survey.json"), targets=("gfx90a",)))
    assert code == NOT_LINKED
    assert "not a target of this build: gfx90a" in output


def test_a_kernel_without_code_for_an_arch_is_left_for_this_machine(project: Project) -> None:
    guarded = project.root / f"build/{KERNELS[0]}.hip"
    guarded.write_text("#if !defined(__HIP_DEVICE_COMPILE__) || (defined(__gfx12__))\n// code\n#endif\n")
    device, host = project.survey().parts
    assert {*device.key.sources} - {*device.sources} == {KERNELS[0]}
    assert host.sources == host.key.sources


def test_the_platform_changes_with_the_headers_of_rocm_and_the_compiler(project: Project) -> None:
    first = project.survey().worker_compiler
    header = project.hipcc.parents[1] / "include/hip/hip_runtime.h"
    header.parent.mkdir(parents=True)
    header.write_text("// hip\n")
    second = project.survey().worker_compiler
    project.hipcc.write_text(project.hipcc.read_text() + "\n# other\n")
    assert len({first, second, project.survey().worker_compiler}) == 3


def test_a_worker_prints_the_platform_of_its_compiler(project: Project) -> None:
    asked = [sys.executable, "-ISB", str(survey_module.__file__)]
    done = subprocess.run([*asked, str(project.hipcc)], capture_output=True, text=True)
    assert done.stdout == project.survey().worker_compiler + "\n"
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
