"""`wheelfactory validate` as a user calls it, with a simulated GPU and simulated results.

The Python, its packages and the results of the program are simulated, everything else is real.
test_gpu_validate_real.py computes for real.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from command_line import Cli
from gpu.installations import H200, MI300X, NO_GPU, fallback, installed, with_arch, with_software
from numeric_reports import numbers
from wheel_factory import CK, make_wheel
from wheelfactory.build.environments import Environment
from wheelfactory.core.errors import BAD_INPUT, DONE, VERIFICATION_FAILED
from wheelfactory.gpu import compute, validate
from wheelfactory.gpu.installed import InstalledPackage
from wheelfactory.gpu.torch_python import TorchPython
from wheelfactory.gpu.validation_report import Hardware, Validation
from wheelfactory.verify.accuracy import NumericReport
from wheelfactory.verify.emulation import EmulatedKernel, EmulationReport
from wheelfactory.verify.result import Status

FALLBACK_NUMBERS = numbers(
    gpu="sm_90",
    backend="flash_attention_amd",
    file="/venv/lib/python3.12/site-packages/flash_attention_amd/__init__.py",
    call_counts={"flash_attention_amd.functions.flash_attn_func": 8},
)


class Machine:
    """Stands in for a machine: its Python with torch, what that has installed, and what the program reports there."""

    def __init__(self) -> None:
        self.python: TorchPython = MI300X
        self.installed: InstalledPackage = installed()
        self.answer: NumericReport | str = numbers()
        self.commands: list[tuple[str, ...]] = []
        self.environ: Mapping[str, str] = {}

    def ask(
        self, command: tuple[object, ...], kind: object, python: object, environ: Mapping[str, str], **_: object
    ) -> NumericReport | str:
        self.commands.append(tuple(str(part) for part in command[1:]))
        self.environ = environ
        return self.answer


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """One with an MI300X and a good Triton wheel installed, until the test changes it."""
    made = Machine()
    monkeypatch.setattr(validate, "find_torch_python", lambda given, environ: made.python)
    monkeypatch.setattr(validate, "make_build_environment", lambda cache: Environment(Path("/own")))
    monkeypatch.setattr(validate, "read_installed", lambda python, environ: made.installed)
    monkeypatch.setattr(compute, "run_program", made.ask)
    return made


def report(out: str) -> Validation:
    return Validation.model_validate_json(out)


def test_a_good_wheel_on_its_gpu_is_validated(cli: Cli, machine: Machine) -> None:
    found = report(cli("validate", "--json", "--cache", "cache").out)
    assert found.hardware == Hardware(vendor="amd", device="AMD Instinct MI300X", arch="gfx942")
    assert (found.software.torch, found.software.hip) == ("2.13.0+rocm7.2", "7.2.53211")
    assert found.validated.offload_archs == ("gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100")
    assert (found.symbols, found.dropped_launch_options) == (numbers().call_counts, None)

    done = cli("validate", "--cache", "cache")
    assert done.code == DONE, done.err
    assert machine.commands == [("flash_attn", "cuda", "full")] * 2
    assert done.out.splitlines()[-1] == "validated on AMD Instinct MI300X (gfx942)"
    assert "  passed    GPU (AMD Instinct MI300X (gfx942))" in done.out.splitlines()
    assert "computing on AMD Instinct MI300X" in done.err


def test_a_kernel_that_ends_the_program_is_refused_with_the_case_it_was_at(cli: Cli, machine: Machine) -> None:
    machine.answer = "killed by SIGABRT; at: dim 256 causal bfloat16; Memory access fault by GPU node-1"
    done = cli("validate", "--json", "--cache", "cache")
    assert done.code == VERIFICATION_FAILED
    found = report(done.out)
    assert found.cases[0].name == "all on AMD Instinct MI300X"
    assert "at: dim 256 causal bfloat16" in found.cases[0].detail
    assert found.hardware.arch == "gfx942"
    assert {check.name: check.status for check in found.checks}["GPU"] is Status.NOT_RUN  # it did not say which it had


@pytest.mark.parametrize(("gpu", "name"), [("gfx90a", "gfx90a"), (None, "none")])
def test_another_gpu_than_the_users_is_refused(cli: Cli, machine: Machine, gpu: str | None, name: str) -> None:
    machine.answer = numbers(gpu=gpu)
    done = cli("validate", "--cache", "cache")
    assert done.code == VERIFICATION_FAILED
    assert f"  failed    GPU (computed on {name} instead of AMD Instinct MI300X (gfx942))" in done.out.splitlines()


def test_cases_that_are_left_out_do_not_stand_for_those_that_ran(cli: Cli, machine: Machine) -> None:
    machine.answer = numbers(left_out=("uneven cached full float16",)).model_copy(update={"cases": ()})
    done = cli("validate", "--json", "--cache", "cache")
    assert done.code == VERIFICATION_FAILED
    assert [case.status for case in report(done.out).cases] == [Status.FAILED, Status.NOT_RUN]


def test_known_limits_of_the_arch_are_left_out_for_triton(cli: Cli, machine: Machine) -> None:
    machine.python, machine.answer = with_arch("gfx1030"), numbers(gpu="gfx1030")
    cli("validate", "--cache", "cache")
    machine.python = with_software(machine.python, torch="2.9.1+rocm6.4", hip="6.4.43482")
    machine.installed = installed(CK)
    cli("validate", "--cache", "cache")
    assert machine.commands == [("flash_attn", "cuda", "full", "*causal bfloat16"), ("flash_attn", "cuda", "full")]


def test_the_users_variables_reach_the_program(cli: Cli, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = {"HIP_VISIBLE_DEVICES": "3", "FLASH_ATTENTION_TRITON_AMD_AUTOTUNE": "TRUE"}
    for name, value in {**chosen, "TRITON_KERNEL_DUMP": "1", "FLASH_ATTENTION_TRITON_AMD_REF": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("FLASH_ATTENTION_TRITON_AMD_ENABLE", raising=False)
    cli("validate", "--cache", "cache")
    assert chosen.items() <= machine.environ.items()
    left = {name for name in machine.environ if name.startswith(("TRITON_", "FLASH_"))}
    assert left == {"FLASH_ATTENTION_TRITON_AMD_AUTOTUNE"}
    monkeypatch.setenv("FLASH_ATTENTION_TRITON_AMD_ENABLE", "FALSE")
    cli("validate", "--cache", "cache")
    assert machine.environ["FLASH_ATTENTION_TRITON_AMD_ENABLE"] == "FALSE"


def test_a_non_amd_gpu_is_used_only_on_request(cli: Cli, machine: Machine) -> None:
    machine.python = with_software(H200, triton=None)
    done = cli("validate", "--cache", "cache")
    assert (done.code, machine.commands) == (DONE, [])
    gpu = "  not run   GPU (NVIDIA H200 is not an AMD GPU; --non-amd-gpu runs it in a test mode)"
    assert gpu in done.out.splitlines()
    assert done.out.splitlines()[-1] == "no failure, but nothing was computed on a GPU"


def test_the_test_mode_computes_without_proving_anything_for_amd(cli: Cli, machine: Machine) -> None:
    machine.python, machine.answer = H200, numbers(gpu="sm_90", dropped=("waves_per_eu",))
    done = cli("validate", "--non-amd-gpu", "--json", "--cache", "cache")
    found = report(done.out)
    assert done.code == DONE
    assert machine.commands == [("flash_attn", "cuda", "full", "--non-amd-gpu")]
    assert found.dropped_launch_options == ("waves_per_eu",)
    assert found.hardware == Hardware(vendor="nvidia", device="NVIDIA H200", arch="sm_90")
    last = cli("validate", "--non-amd-gpu", "--cache", "cache").out.splitlines()[-1]
    assert last.endswith("in the non-AMD GPU test mode: this proves nothing about AMD GPUs")


@pytest.mark.parametrize(
    ("python", "device", "verdict"),
    [
        (H200, "cuda", "validated on NVIDIA H200 (sm_90)"),
        (NO_GPU, "cpu", "no failure, but nothing was computed on a GPU"),
    ],
)
def test_the_fallback_runs_on_any_gpu_and_on_the_cpu(
    cli: Cli, machine: Machine, python: TorchPython, device: str, verdict: str
) -> None:
    machine.python, machine.installed, machine.answer = python, fallback(), FALLBACK_NUMBERS
    done = cli("validate", "--cache", "cache")
    assert (done.code, machine.commands) == (DONE, [("flash_attention_amd", device, "full")])
    assert done.out.splitlines()[-1] == verdict


def test_without_a_gpu_compiled_kernels_and_without_packages_the_emulator_do_not_run(
    cli: Cli, machine: Machine
) -> None:
    machine.python, machine.installed = with_software(NO_GPU, torch="2.9.1+cpu"), installed(CK)
    done = cli("validate", "--cache", "cache")
    assert (done.code, machine.commands) == (DONE, [])
    assert "  not run   GPU (torch 2.9.1+cpu of /venv/bin/python sees none)" in done.out.splitlines()

    machine.python, machine.installed = NO_GPU, installed().model_copy(update={"has_numpy": False})
    done = cli("validate", "--cache", "cache")
    assert (done.code, machine.commands) == (DONE, [])
    assert "emulation (/venv/bin/python has no Triton and no numpy, which the emulator needs)" in done.out


def test_without_a_gpu_or_if_asked_to_the_emulator_executes(cli: Cli, machine: Machine) -> None:
    machine.python, machine.answer = with_software(NO_GPU, triton="3.7.1"), executed("gfx942")
    done = cli("validate", "--cache", "cache")
    assert done.code == DONE, done.out
    assert done.out.splitlines()[-1].startswith(
        "executed in emulation for gfx942 without a failure, but nothing was computed on a GPU"
    )
    assert "attn_fwd 256 registers, 11 spilled, 16384 bytes of local memory" in done.out
    assert "executing with Triton 3.7.1 on an emulator of gfx942" in done.err

    machine.python, machine.answer = MI300X, executed("gfx1030")
    cli("validate", "--emulate", "gfx1030", "--cache", "cache")
    reversed_order = ("first", "--order", "reversed")
    assert machine.commands == [("gfx942", *reversed_order), ("gfx1030", *reversed_order, "*causal bfloat16")]


def executed(arch: str) -> EmulationReport:
    counts = dict.fromkeys(EmulatedKernel.model_fields, 0) | {"vector_registers": 256, "local": 16384}
    kernel = EmulatedKernel.model_validate({**counts, "name": "attn_fwd", "vector_spills": 11})
    return EmulationReport(**dict(numbers()), arch=arch, kernels=(kernel,))


@pytest.mark.parametrize(
    ("arguments", "package", "error"),
    [
        (("--emulate", "gfx906"), installed(), "no emulator of this arch: gfx906"),
        (("--emulate", "gfx942"), installed(CK), "flash-attn (its kernels are Composable Kernel's)"),
        (("--emulate", "gfx942"), fallback(), "(needs no emulator: it has no kernels)"),
        (("--emulate", "gfx942", "--non-amd-gpu"), installed(), "not allowed with argument"),
    ],
)
def test_what_cannot_be_emulated_is_refused(
    cli: Cli, machine: Machine, arguments: tuple[str, ...], package: InstalledPackage, error: str
) -> None:
    machine.installed = package
    done = cli("validate", *arguments, "--cache", "cache")
    assert (done.code, machine.commands) == (BAD_INPUT, [])
    assert error in done.err


@pytest.mark.parametrize(
    ("python", "package", "autotune", "error"),
    [
        (MI300X, installed(), "", "not a non-AMD GPU: AMD Instinct MI300X"),
        (NO_GPU, installed(), "", "no GPU: torch 2.13.0+cpu of /venv/bin/python sees none"),
        (H200, installed(CK), "", "(its kernels are compiled for AMD GPUs)"),
        (H200, fallback(), "", "(runs on any GPU)"),
        (H200, installed(), "1", "cannot autotune on a non-AMD GPU: upstream has no configurations"),
    ],
    ids=["an AMD GPU", "no GPU", "a CK wheel", "the fallback", "autotune"],
)
def test_the_test_mode_is_refused_where_it_does_not_apply(
    cli: Cli,
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    python: TorchPython,
    package: InstalledPackage,
    autotune: str,
    error: str,
) -> None:
    machine.python, machine.installed = python, package
    monkeypatch.setenv("FLASH_ATTENTION_TRITON_AMD_AUTOTUNE", autotune)
    done = cli("validate", "--non-amd-gpu", "--cache", "cache")
    assert (done.code, machine.commands, done.out) == (BAD_INPUT, [], "")
    assert error in done.err
    assert "hint: " in done.err


def test_a_wheel_of_something_else_is_refused(cli: Cli, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, name="numpy", version="2.0")
    done = cli("validate", wheel, "--cache", "cache")
    assert done.code == BAD_INPUT
    assert "cannot validate this wheel: numpy-2.0-py3-none-any.whl" in done.err
