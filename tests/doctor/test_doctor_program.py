"""The doctor as a program: output, JSON, exit codes, and messages about unavailable resources."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from doctor.fake_machines import MACHINES, TORCHES, fake_torch, make_python, make_root
from doctor.known import FACTS, PROBE_TEXT, WRITTEN
from doctor.releases import BASE, as_read, fallback_row, small_release
from release_factory import quick_gates
from wheelfactory.commands.doctor import add, execute
from wheelfactory.core.checkout import ROOT
from wheelfactory.core.errors import BAD_INPUT, DONE, FAILED, FactoryError, InputError
from wheelfactory.doctor import program
from wheelfactory.doctor.diagnosis import Diagnosis
from wheelfactory.doctor.fit import find_fit
from wheelfactory.doctor.machine import Device, InstalledFlashAttn, InstalledTorch, Machine, Python
from wheelfactory.doctor.program import add_options, diagnose_and_report, main
from wheelfactory.doctor.published_wheels import PublishedWheel
from wheelfactory.doctor.report import DoctorReport, as_json, make_report
from wheelfactory.doctor.report_text import report_lines
from wheelfactory.release.manifest import MANIFEST_NAME, WheelRow, manifest_bytes

PYTHON = Python("/venv/bin/python", "3.11.7", "cp311", glibc="2.36", pip="25.0")
MI300X = Machine(
    PYTHON,
    torch=InstalledTorch("2.9.1+rocm6.4", hip="6.4.43482", cxx11_abi=True, sees_gpu=True),
    rocm="6.4.3",
    rocm_path="/opt/rocm",
    gpus=("gfx942",) * 8,
    gpu_names=("AMD Instinct MI300X OAM",) * 8,
)
RADEON = replace(MI300X, gpus=("gfx1030",), gpu_names=("Radeon RX 6800",))
CK_FILE = "flash_attn-2.8.3+rocm64torch2.9-cp311-cp311-manylinux_2_28_x86_64.whl"
TRITON_FILE = "flash_attn-2.8.3+rocm64torch2.9triton-py3-none-any.whl"


@pytest.fixture(autouse=True)
def filled_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the facts and the probe that doctor.py embeds."""
    monkeypatch.setattr(program, "FACTS", WRITTEN)
    monkeypatch.setattr(program, "TORCH_PROBE", PROBE_TEXT)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> tuple[WheelRow, ...]:
    return small_release(tmp_path_factory.mktemp("release"))


@pytest.fixture(scope="module")
def wheels(rows: tuple[WheelRow, ...]) -> tuple[PublishedWheel, ...]:
    return as_read(rows)


@pytest.fixture
def release(rows: tuple[WheelRow, ...], tmp_path: Path) -> Path:
    """A release directory with only a manifest."""
    folder = tmp_path / "release"
    folder.mkdir()
    (folder / MANIFEST_NAME).write_bytes(manifest_bytes(rows))
    return folder


def report_on(machine: Machine, wheels: tuple[PublishedWheel, ...], *diagnoses: Diagnosis) -> DoctorReport:
    return make_report(
        machine, diagnoses, "https://wheels.example/manifest.jsonl", wheels, find_fit(wheels, machine, FACTS), FACTS
    )


def text_of(report: DoctorReport) -> list[str]:
    return list(report_lines(report))


def sha256_of_file(wheels: tuple[PublishedWheel, ...], name: str) -> str:
    return next(wheel.sha256 for wheel in wheels if wheel.filename == name)


def test_the_matching_wheel_is_printed_with_its_exact_commands(wheels: tuple[PublishedWheel, ...]) -> None:
    einops, ck = (sha256_of_file(wheels, name) for name in ("einops-0.8.2-py3-none-any.whl", CK_FILE))
    exact_einops = f"https://wheels.example/wheels/einops-0.8.2-py3-none-any.whl#sha256={einops}"
    exact_ck = f"https://wheels.example/wheels/{CK_FILE.replace('+', '%2B')}#sha256={ck}"
    lines = text_of(report_on(MI300X, wheels))
    checks = "archive, identity, record, contents, linking, code-objects, symbols, import"
    assert lines[:14] == [
        "Python      3.11.7 (cp311), /venv/bin/python",
        "System      Linux x86_64, glibc 2.36",
        "torch       2.9.1+rocm6.4, HIP 6.4.43482, new C++ ABI, sees a GPU",
        "ROCm        6.4.3 in /opt/rocm",
        "GPU         8 x gfx942 (AMD Instinct MI300X OAM)",
        "flash-attn  not installed",
        "",
        f"Matching wheel: {CK_FILE}",
        "  CK, kernels compiled ahead of time; 1.2 MB; for gfx90a gfx942 gfx950",
        "  verified",
        f"  checks passed: {checks}",
        f"    /venv/bin/python -m pip install --no-deps '{exact_einops}' '{exact_ck}'",
        f"    uv pip install --python /venv/bin/python --no-deps 'einops @ {exact_einops}' 'flash-attn @ {exact_ck}'",
        "",
    ]
    assert lines[14] == f"Other matching wheel: {TRITON_FILE}"


def test_an_unverified_wheel_is_printed_with_its_missing_checks(rows: tuple[WheelRow, ...]) -> None:
    triton = next(row for row in rows if row.filename == TRITON_FILE)
    (wheel,) = as_read([triton.model_copy(update={"gates": quick_gates(str(triton.cell))})])
    report = report_on(MI300X, (replace(wheel, verified_on=("gfx942",)),))
    lines = text_of(report)
    assert lines[9:13] == [
        "  not checked: kernels compiled for its GPUs, numbers",
        "  checks passed: archive, identity, record, contents, import",
        "  checks not run: ahead-of-time, interpreter",
        "  tested on gfx942",
    ]
    assert "verified" not in "\n".join(lines)
    (offer,) = json.loads(json.dumps(as_json(report)))["fitting"]
    assert offer["unverified"] == "not checked: kernels compiled for its GPUs, numbers"


def test_an_unverified_wheel_for_another_torch_is_printed_with_its_missing_checks(rows: tuple[WheelRow, ...]) -> None:
    triton = next(row for row in rows if row.filename == TRITON_FILE)
    old = as_read([triton.model_copy(update={"gates": ()})])
    lines = text_of(report_on(replace(MI300X, torch=None), old))
    at = lines.index(f"2. Install this wheel (run the doctor again for its command): {TRITON_FILE}")
    assert lines[at + 1].startswith("  not checked: archive, ")


def test_the_verified_archs_are_printed(wheels: tuple[PublishedWheel, ...]) -> None:
    verified = tuple(replace(wheel, verified_on=("gfx90a", "gfx942")) for wheel in wheels)
    assert text_of(report_on(MI300X, verified))[11] == "  verified on gfx90a, gfx942"


def test_problems_are_printed_before_the_matching_wheel(wheels: tuple[PublishedWheel, ...]) -> None:
    lines = text_of(report_on(MI300X, wheels, Diagnosis("group", "no group render", "sudo usermod -aG render you")))
    assert lines[6:9] == ["", "Problem: no group render", "Fix:     sudo usermod -aG render you"]
    assert lines.index(f"Matching wheel: {CK_FILE}") > 8


def test_the_closest_wheels_are_printed_with_all_reasons(
    wheels: tuple[PublishedWheel, ...],
) -> None:
    lines = text_of(report_on(replace(RADEON, torch=replace(MI300X.torch or InstalledTorch(""), hip="7.2.1")), wheels))
    assert lines[7:14] == [
        "Your torch does not match any wheel.",
        "1. Install this torch:",
        "    /venv/bin/python -m pip install torch==2.9.1+rocm6.4 --index-url https://download.pytorch.org/whl/rocm6.4",
        "    uv pip install --python /venv/bin/python torch==2.9.1+rocm6.4 "
        "--default-index https://download.pytorch.org/whl/rocm6.4",
        f"2. Install this wheel (run the doctor again for its command): {TRITON_FILE}",
        "",
        "Closest wheels and why they do not match:",
    ]
    assert lines[14:16] == [f"  {TRITON_FILE}", "    built for ROCm 6.4, your torch for 7.2"]
    at = lines.index(f"  {CK_FILE}")
    reasons = ["    built for ROCm 6.4, your torch for 7.2", "    has no code for gfx1030 (Radeon RX 6800)"]
    assert lines[at + 1 : at + 3] == reasons
    assert sum(line.startswith("  flash_attn-") for line in lines) == 5
    assert lines[-1] == "  and 1 more (listed by --json)"


def test_the_fallback_is_offered_only_if_no_wheel_matches(wheels: tuple[PublishedWheel, ...], tmp_path: Path) -> None:
    with_fallback = (*wheels, *as_read([fallback_row(tmp_path)]))
    (row,) = as_read([fallback_row(tmp_path)])
    address = f"{BASE}wheels/{row.filename}#sha256={row.sha256}"
    old = replace(MI300X, gpus=("gfx803",), gpu_names=("Radeon RX 580",))
    report = report_on(old, with_fallback)
    assert text_of(report)[-4:] == [
        "",
        "Alternative: the same functions in pure PyTorch, for any GPU that your torch supports.",
        f"    /venv/bin/python -m pip install --no-deps {shlex.quote(address)}",
        f"    uv pip install --python /venv/bin/python --no-deps {shlex.quote(f'flash-attention-amd @ {address}')}",
    ]
    fallback = as_json(report)["fallback"]
    assert isinstance(fallback, dict)
    assert fallback["filename"] == "flash_attention_amd-0.1.0-py3-none-any.whl"
    assert report.exit_code == FAILED
    assert report_on(MI300X, with_fallback).fallback is None
    assert report_on(old, wheels).fallback is None


def test_a_working_installed_wheel_is_not_reinstalled(wheels: tuple[PublishedWheel, ...]) -> None:
    machine = replace(MI300X, flash_attn=InstalledFlashAttn("2.8.3+rocm64torch2.9", "/venv/lib"))
    lines = text_of(report_on(machine, wheels))
    assert "flash-attn  2.8.3+rocm64torch2.9, imports" in lines
    at = lines.index(f"Already installed: {CK_FILE}")
    assert lines[at + 4 : at + 7] == [
        "  to compare it with what was published:",
        "    wheelfactory verify --from https://wheels.example/manifest.jsonl flash-attn",
        "",
    ]  # no install command


def test_a_broken_installed_wheel_is_reinstalled(wheels: tuple[PublishedWheel, ...]) -> None:
    broken = InstalledFlashAttn("2.8.3+rocm64torch2.9", "/venv/lib", error="ImportError: undefined symbol: _ZN3c10")
    report = report_on(replace(MI300X, flash_attn=broken), wheels, Diagnosis("symbol", "wrong torch", "another wheel"))
    assert not report.offers[0].installed
    assert "--force-reinstall" in report.offers[0].pip
    assert "--reinstall" in report.offers[0].uv
    assert "--force-reinstall" not in report.offers[1].pip  # that one is not installed
    assert report.exit_code == FAILED


def test_blockers_of_the_commands_are_printed(wheels: tuple[PublishedWheel, ...]) -> None:
    machine = replace(MI300X, python=replace(PYTHON, externally_managed=True, pip=None))
    notes = [line for line in text_of(report_on(machine, wheels)) if line.startswith("Note: ")]
    assert [re.findall(r"`(.*?)`", line)[0] for line in notes] == [
        "/venv/bin/python -m venv --system-site-packages flash-attn-env",
        "/venv/bin/python -m ensurepip",
    ]


def test_an_externally_managed_python_without_torch_needs_no_system_packages(
    wheels: tuple[PublishedWheel, ...],
) -> None:
    machine = replace(MI300X, python=replace(PYTHON, externally_managed=True), torch=None)
    (note,) = [line for line in text_of(report_on(machine, wheels)) if line.startswith("Note: ")]
    assert (
        "create an environment with `/venv/bin/python -m venv flash-attn-env`, then run the doctor with --python "
        in note
    )


def test_without_a_gpu_compatibility_is_not_checked(wheels: tuple[PublishedWheel, ...]) -> None:
    lines = text_of(report_on(replace(MI300X, gpus=(), gpu_names=()), wheels))
    assert "No GPU detected, so GPU compatibility was not checked." in lines


@pytest.mark.parametrize(
    ("machine", "wrong", "code"),
    [
        (MI300X, False, DONE),
        (MI300X, True, DONE),  # nothing is installed, and a wheel matches
        (replace(RADEON, gpus=("gfx1151",)), False, FAILED),
        (replace(MI300X, flash_attn=InstalledFlashAttn("2.8.3", "/venv/lib")), False, DONE),
        (replace(RADEON, gpus=("gfx1151",), flash_attn=InstalledFlashAttn("2.8.3", "/venv/lib")), False, DONE),
        (replace(MI300X, flash_attn=InstalledFlashAttn("2.8.3", "/venv/lib", error="ImportError")), True, FAILED),
    ],
)
def test_the_exit_code_is_of_the_installed_wheel_or_of_the_match(
    wheels: tuple[PublishedWheel, ...], machine: Machine, wrong: bool, code: int
) -> None:
    diagnoses = [Diagnosis("kind", "problem", "remedy")] if wrong else []
    assert report_on(machine, wheels, *diagnoses).exit_code == code


def test_without_a_site_the_exit_code_is_of_the_problems() -> None:
    assert DoctorReport(MI300X).exit_code == DONE
    assert DoctorReport(MI300X, (Diagnosis("kind", "problem", "remedy"),)).exit_code == FAILED


def _paths(value: object, path: str = "") -> Iterator[str]:
    """Yield the paths of all keys in a JSON value; not below mappings with arbitrary keys."""
    if isinstance(value, list):
        for item in value:
            yield from _paths(item, f"{path}[]")
    elif isinstance(value, dict) and path.rpartition(".")[2] not in ("packages", "environ", "gates", "build_record"):
        for key, inner in value.items():
            own = f"{path}.{key}" if path else key
            yield from _paths(inner, own) if inner not in ([], {}, None) else iter([own])
    else:
        yield path.removesuffix("[]")


def _documented() -> set[str]:
    text = (ROOT / "docs/reference/doctor.md").read_text(encoding="utf-8")
    keys = re.findall(r"^\| `([a-z0-9_.\[\]{},]+)` \|", text.partition("## JSON")[2], re.MULTILINE)
    found: set[str] = set()
    for key in keys:
        before, _, rest = key.partition("{")
        names, _, after = rest.partition("}")
        found.update(f"{before}{name}{after}" for name in names.split(",")) if rest else found.add(key)
    return found


def test_the_json_has_exactly_the_documented_keys(wheels: tuple[PublishedWheel, ...], tmp_path: Path) -> None:
    """Three reports have all keys between them."""
    device = Device("/dev/kfd", exists=True, usable=True, group="render")
    full = replace(
        MI300X,
        torch=replace(MI300X.torch or InstalledTorch(""), archs=("gfx942",)),
        flash_attn=InstalledFlashAttn(
            "2.8.3", "/venv/lib", requires=("torch",), extension="/x.so", extension_archs=("gfx942",)
        ),
        packages={"triton": "3.5.1"},
        devices=(device,),
        container="docker",
        groups=("render",),
        environ={"ROCM_PATH": "/opt/rocm"},
    )
    error = InputError("no such site", "nowhere", "name another")
    reports = [
        as_json(report_on(full, wheels, Diagnosis("kind", "problem", "remedy"))),
        as_json(report_on(replace(RADEON, torch=None), wheels), error),
        as_json(report_on(MI300X, as_read([fallback_row(tmp_path)]))),
    ]
    found = {path for report in reports for path in _paths(json.loads(json.dumps(report)))}
    whole = {path for path in found for other in found if other.startswith((f"{path}.", f"{path}[]."))}
    assert found - whole == _documented()


Run = Callable[..., "Ran"]


class Ran(NamedTuple):
    """The outcome of a run of the doctor."""

    code: int
    out: list[str]
    error: FactoryError | None


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A function that runs the doctor on a fake machine with one of the torch stubs."""
    root = make_root(tmp_path / "root", MACHINES["8 x MI300X"], rocm="6.4.3")
    archs = ("gfx942:sramecc+:xnack-",) * 8
    working = fake_torch("2.9.1+rocm6.4", hip="6.4.43482", archs=archs)

    def run_doctor(*arguments: str, site: str, torch: str = "working") -> Ran:
        parser = argparse.ArgumentParser()
        add_options(parser)
        executable = make_python(tmp_path / "env", working if torch == "working" else TORCHES[torch])
        out: list[str] = []
        options, environ = parser.parse_args(arguments), {"PATH": os.environ["PATH"]}
        given = (options, executable, FACTS, PROBE_TEXT, site, environ)
        try:
            return Ran(diagnose_and_report(*given, show=out.append, tell=lambda _: None, root=root), out, None)
        except FactoryError as error:
            return Ran(error.exit_code, out, error)

    return run_doctor


def test_the_machine_is_examined_and_matched(run: Run, release: Path) -> None:
    ran = run(site=str(release))
    assert (ran.code, ran.error) == (DONE, None)
    assert any(line.endswith(f"atching wheel: {TRITON_FILE}") for line in ran.out)  # matches any Python
    assert "torch       2.9.1+rocm6.4, HIP 6.4.43482, new C++ ABI, sees a GPU" in ran.out


def test_options_limit_the_wheels(run: Run, release: Path) -> None:
    ran = run("--backend", "triton", "--flash-attn", "2.8.3", site=str(release))
    assert [line for line in ran.out if "atching wheel: " in line] == [f"Matching wheel: {TRITON_FILE}"]


def test_json_is_one_object_with_the_exit_code(run: Run, release: Path) -> None:
    ran = run("--json", site=str(release), torch="cuda")
    report = json.loads("\n".join(ran.out))
    assert ran.code == report["exit_code"] == FAILED
    assert report["machine"]["torch"]["cuda"] == "12.8"
    assert report["fitting"] == []
    assert "torch is a CUDA build" in report["near_misses"][0]["reasons"]
    assert "torch==" in report["torch"]["pip"]


def test_an_unreadable_site_is_an_error_after_the_examination(run: Run, tmp_path: Path) -> None:
    ran = run(site=str(tmp_path))
    assert ran.code == BAD_INPUT
    assert str(ran.error).startswith("cannot read the manifest: ")
    assert ran.out[0].startswith("Python ")
    assert not any("No site given" in line for line in ran.out)


def test_an_unreadable_site_is_in_the_json(run: Run, tmp_path: Path) -> None:
    ran = run("--json", site=str(tmp_path))
    report = json.loads("\n".join(ran.out))
    assert report["error"]["what"] == "cannot read the manifest"
    assert report["error"]["hint"]
    assert (report["site"], report["exit_code"], ran.code) == (str(tmp_path), BAD_INPUT, BAD_INPUT)
    assert len(report["machine"]["gpus"]) == 8


def test_without_a_site_the_output_explains_how_to_pass_one(run: Run) -> None:
    ran = run(site="")
    assert ran.out[-1].startswith("No site given")


def test_installing_needs_a_site(run: Run) -> None:
    ran = run("--install", site="")
    assert str(ran.error) == "no site to install from: --install"
    assert ran.out == []


def test_bad_arguments_are_an_error_of_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--json", "--install"], ["--backend", "cuda"], ["--nonsense"]):
        assert main(arguments) == BAD_INPUT
        error, hint = capsys.readouterr().err.splitlines()
        assert error.startswith("error: bad arguments: ")
        assert hint == "hint: run `doctor.py --help` to list the options"


def test_a_missing_python_is_an_error_of_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--python", "/nowhere/python"]) == BAD_INPUT
    errors = capsys.readouterr().err.splitlines()
    assert errors[1].startswith("error: cannot examine this Python: /nowhere/python (cannot be run: ")


def test_text_that_the_terminal_cannot_print_is_replaced(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    with open(1, "w", encoding="ascii", closefd=False) as ascii_only:
        monkeypatch.setattr(sys, "stdout", ascii_only)
        monkeypatch.setenv("ROCM_PATH", "/opt/r\u00f6cm")
        main(["--python", make_python(tmp_path / "env")])
    assert b"ROCM_PATH='/opt/r?cm'" in capfdbinary.readouterr().out


def as_command(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    parser = argparse.ArgumentParser()
    add(parser)
    code = execute(parser.parse_args([str(argument) for argument in arguments]), os.environ)
    return code, *capsys.readouterr()


def test_the_command_examines_the_users_python_by_default(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    python = make_python(tmp_path / "own", TORCHES["cpu"])
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "own"))
    _, _, err = as_command(capsys)
    assert f"examining {python}3: " in err


def test_the_site_can_be_a_github_repository(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def note(*given: object, **_: object) -> int:
        asked.append(str(given[4]))
        return DONE

    monkeypatch.setattr("wheelfactory.commands.doctor.diagnose_and_report", note)
    assert as_command(capsys, "github:Me/wheels")[0] == DONE
    assert asked == ["https://me.github.io/wheels/"]


def test_the_command_prints_the_same_as_the_file(
    release: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    python = make_python(tmp_path / "env", TORCHES["cpu"])
    code, out, _ = as_command(capsys, release, "--python", python)
    assert code == FAILED
    assert main([str(release), "--python", python]) == FAILED
    assert capsys.readouterr().out == out
    assert "torch is a CPU build" in out
