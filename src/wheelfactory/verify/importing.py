"""Gate: the wheel installs into a fresh environment with the Triton of its cell, imports, and names its version."""

from __future__ import annotations

import os

from wheelfactory.cell import Backend
from wheelfactory.environments import (
    Environment,
    build_environment,
    cpu_torch,
    empty_environment,
    pip_install,
    triton_environment,
)
from wheelfactory.errors import VerificationError
from wheelfactory.files import scratch_dir
from wheelfactory.process import capture
from wheelfactory.verify.gate import Finding, GateResult, Status, Subject

_IMPORT = """
import importlib.metadata, flash_attn
from flash_attn.flash_attn_interface import flash_attn_func
print(importlib.metadata.version("flash-attn"))
"""


def importing(subject: Subject) -> GateResult:
    """Install and import; torch is a CPU build, because the import reaches no GPU.

    A CK wheel needs the torch and the HIP libraries of its cell, so here it is not run for one.
    """
    if subject.cell.backend is Backend.CK:
        return GateResult(
            gate="import",
            status=Status.NOT_RUN,
            detail="importing a CK wheel needs the ROCm torch of its cell; run it in the cell's image",
        )
    triton = subject.matrix.torch[subject.cell.torch].triton
    layers = (build_environment(subject.cache), triton_environment(subject.cache, triton))
    with scratch_dir(subject.cache) as scratch:
        environment = empty_environment(scratch / "env", layers)
        pip_install(environment, "--no-deps", "--no-index", subject.wheel.path)
        findings = _import(subject, environment)
    return GateResult.of("import", findings, f"Triton {triton}, {cpu_torch()} in place of ROCm's")


def _import(subject: Subject, environment: Environment) -> list[Finding]:
    environ = {
        "PATH": os.defpath,
        "FLASH_ATTENTION_TRITON_AMD_ENABLE": "TRUE",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    name = subject.wheel.path.name
    try:
        found = capture(
            [environment.python, "-I", "-c", _IMPORT],
            environ=environ,
            cwd=environment.folder,
            failure=VerificationError,
        ).strip()
    except VerificationError as error:
        return [
            Finding(
                file=name,
                expected="to import",
                found=error.which.splitlines()[-1],
                cure="the kernels and this Triton do not fit; narrow the release's Triton window",
            )
        ]
    expected = str(subject.wheel.version)
    if found != expected:
        return [Finding(file=name, expected=f"version {expected}", found=found, cure="build the wheel again")]
    return []
