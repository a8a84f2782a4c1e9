"""The doctor as a program: output, JSON, exit codes, and messages about unavailable resources."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from doctor.fake_machines import MACHINES, TORCHES, fake_torch, make_python, make_root
from doctor.known import FACTS, PROBE_TEXT, WRITTEN
from doctor.releases import BASE, as_read, fallback_row, small_release
from release_factory import quick_gates
from wheelfactory.commands.doctor import add, execute
from wheelfactory.core.errors import BAD_INPUT, DONE, FAILED, FactoryError, InputError
from wheelfactory.core.files import ROOT
from wheelfactory.core.published import MANIFEST_NAME
from wheelfactory.doctor import program
from wheelfactory.doctor.diagnosis import INSTALL_MATCHING_WHEEL, Diagnosis
from wheelfactory.doctor.fit import find_fit
from wheelfactory.doctor.machine import Device, InstalledFlashAttn, InstalledTorch, Machine, Python
from wheelfactory.doctor.manifest_source import ManifestSource
from wheelfactory.doctor.program import add_options, diagnose_and_report, main
from wheelfactory.doctor.published_wheels import PublishedWheel
from wheelfactory.doctor.report import DoctorReport, as_json, make_report
from wheelfactory.doctor.report_text import report_lines
from wheelfactory.release.manifest import WheelRow, manifest_bytes

SOURCE = ManifestSource(f"{BASE}manifest.jsonl", BASE, has_index=True)
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
CK_FILE = "flash_attn-2.8.3+rocm64torch2.9-1-cp311-cp311-manylinux_2_28_x86_64.whl"
TRITON_FILE = "flash_attn-2.8.3+rocm64torch2.9triton-1-py3-none-any.whl"


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
        machine, diagnoses, SOURCE, wheels, find_fit(wheels, machine, FACTS), FACTS, doctor=("python3", "doctor.py")
    )


def text_of(report: DoctorReport) -> list[str]:
    return list(report_lines(report))


def sha256_of_file(wheels: tuple[PublishedWheel, ...], name: str) -> str:
    return next(wheel.sha256 for wheel in wheels if wheel.filename == name)


def test_the_matching_wheel_is_printed_with_the_command_for_the_sites_index(wheels: tuple[PublishedWheel, ...]) -> None:
    lines = text_of(report_on(MI300X, wheels))
    checks = "archive, identity, record, contents, linking, code-objects, symbols, import"
    assert lines[:16] == [
        "Python      3.11.7 (cp311), /venv/bin/python",
        "System      Linux x86_64, glibc 2.36",
        "torch       2.9.1+rocm6.4, HIP 6.4.43482, new C++ ABI, sees a GPU",
        "ROCm        6.4.3 in /opt/rocm",
        "GPU         8 x gfx942 (AMD Instinct MI300X OAM)",
        "flash-attn  not installed",
        "Support     gfx942: CK works, Triton works",
        "",
        f"Matching wheel: {CK_FILE}",
        "  CK, kernels compiled ahead of time; 1.2 MB; for gfx90a gfx942 gfx950",
        "  raises an error for: float32; softcap; cache_leftpad",
        "  verified",
        f"  checks passed: {checks}",
        "Install flash-attn 2.8.3, CK backend:",
        "  /venv/bin/python -m pip install --index-url https://wheels.example/simple/rocm64/torch2.9/ck/ \\",
        "    flash-attn==2.8.3+rocm64torch2.9",
    ]
    assert lines[17] == f"Other matching wheel: {TRITON_FILE}"
    assert lines[-1] == "  to install it, run the doctor with --backend triton"


def test_a_manifest_by_itself_has_no_index_so_files_are_installed_by_address(
    wheels: tuple[PublishedWheel, ...],
) -> None:
    einops, ck = (sha256_of_file(wheels, name) for name in ("einops-0.8.2-py3-none-any.whl", CK_FILE))
    exact_einops = f"https://wheels.example/wheels/einops-0.8.2-py3-none-any.whl#sha256={einops}"
    exact_ck = f"https://wheels.example/wheels/{CK_FILE.replace('+', '%2B')}#sha256={ck}"
    alone = replace(SOURCE, has_index=False)
    report = make_report(MI300X, (), alone, wheels, find_fit(wheels, MI300X, FACTS), FACTS)
    assert text_of(report)[13:17] == [
        "Install flash-attn 2.8.3, CK backend:",
        "  /venv/bin/python -m pip install --no-deps \\",
        f"    '{exact_einops}' \\",
        f"    '{exact_ck}'",
    ]


def test_lines_are_short_enough_to_read(wheels: tuple[PublishedWheel, ...], tmp_path: Path) -> None:
    managed = replace(PYTHON, executable="/usr/bin/python3", externally_managed=True)
    for machine in (MI300X, RADEON, replace(RADEON, torch=None, python=managed), replace(RADEON, gpus=("gfx1031",))):
        with_fallback = (*wheels, *as_read([fallback_row(tmp_path)]))
        commands = [line for line in text_of(report_on(machine, with_fallback)) if " install" in line or "--" in line]
        assert commands
        assert max(map(len, commands)) <= 120


def test_an_unverified_wheel_is_printed_with_its_missing_checks(rows: tuple[WheelRow, ...]) -> None:
    triton = next(row for row in rows if row.filename == TRITON_FILE)
    (wheel,) = as_read([triton.model_copy(update={"gates": quick_gates(str(triton.cell))})])
    report = report_on(MI300X, (replace(wheel, verified_on=("gfx942",)),))
    lines = text_of(report)
    assert lines[11:15] == [
        "  not checked: numbers",
        "  checks passed: archive, identity, record, contents, import",
        "  checks not run: emulation",
        "  tested on gfx942",
    ]
    assert "verified" not in "\n".join(lines)
    (offer,) = json.loads(json.dumps(as_json(report)))["fitting"]
    assert offer["unverified"] == "not checked: numbers"
    assert {"window_size", "softcap", "block_table"} <= set(offer["refused_options"])


def test_the_report_fits_a_terminal_and_its_commands_can_be_copied(rows: tuple[WheelRow, ...]) -> None:
    python = replace(MI300X.python, executable="/home/somebody/projects/attention/environment/bin/python")
    report = report_on(replace(MI300X, torch=None, python=python), as_read(rows))
    lines, whole = list(report_lines(report, 80)), text_of(report)
    assert max(map(len, whole)) > 80
    assert [line for line in lines if len(line) > 80 and "://" not in line] == []
    assert " ".join(lines).replace("\\", "").split() == " ".join(whole).replace("\\", "").split()
    commands = [line for line in lines if line.startswith("     ")]
    assert commands
    assert all(line.endswith(" \\") or following[:6] != " " * 6 for line, following in pairwise(commands))


def test_an_unverified_wheel_for_another_torch_is_printed_with_its_missing_checks(rows: tuple[WheelRow, ...]) -> None:
    triton = next(row for row in rows if row.filename == TRITON_FILE)
    old = as_read([triton.model_copy(update={"gates": ()})])
    lines = text_of(report_on(replace(MI300X, torch=None), old))
    at = lines.index("This Python has no torch.")
    assert lines[at + 1].startswith(f"  Caution: {TRITON_FILE} is not verified (not checked: archive, ")


def test_the_verified_archs_are_printed(wheels: tuple[PublishedWheel, ...]) -> None:
    verified = tuple(replace(wheel, verified_on=("gfx90a", "gfx942")) for wheel in wheels)
    assert text_of(report_on(MI300X, verified))[13] == "  verified on gfx90a, gfx942"


def test_problems_are_printed_before_the_matching_wheel(wheels: tuple[PublishedWheel, ...]) -> None:
    lines = text_of(report_on(MI300X, wheels, Diagnosis("group", "no group render", "sudo usermod -aG render you")))
    assert lines[7:10] == ["", "Problem: no group render", "Fix:     sudo usermod -aG render you"]
    assert lines.index(f"Matching wheel: {CK_FILE}") > 8


def test_another_torch_leads_to_its_wheel_in_numbered_steps(wheels: tuple[PublishedWheel, ...]) -> None:
    lines = text_of(report_on(replace(RADEON, torch=replace(MI300X.torch or InstalledTorch(""), hip="7.2.1")), wheels))
    assert lines[8:] == [
        "Your torch does not match any wheel: built for ROCm 6.4, your torch for 7.2.",
        "1. Install torch 2.9.1 for ROCm 6.4:",
        "     /venv/bin/python -m pip install torch==2.9.1+rocm6.4 \\",
        "       --index-url https://download.pytorch.org/whl/rocm6.4",
        "2. Install flash-attn 2.8.3, Triton backend:",
        "     /venv/bin/python -m pip install \\",
        "       --index-url https://wheels.example/simple/rocm64/torch2.9/triton/ \\",
        "       flash-attn==2.8.3+rocm64torch2.9triton",
        "3. Run the doctor again:",
        "     python3 doctor.py",
    ]


def test_the_closest_wheels_are_printed_with_all_reasons(wheels: tuple[PublishedWheel, ...]) -> None:
    lines = text_of(report_on(replace(RADEON, gpus=("gfx803",), gpu_names=("Radeon RX 580",)), wheels))
    at = lines.index("Closest wheels and why they do not match:")
    assert lines[at + 1 : at + 3] == [f"  {CK_FILE}", "    has no code for gfx803 (Radeon RX 580)"]
    triton = lines.index(f"  {TRITON_FILE}")
    assert lines[triton + 1] == "    was not checked for gfx803 (Radeon RX 580)"
    assert sum(line.startswith("  flash_attn-") for line in lines) == 5
    assert lines[-1] == "  and 1 more (listed by --json)"


def test_a_dead_end_names_what_works_instead(wheels: tuple[PublishedWheel, ...]) -> None:
    lines = text_of(report_on(replace(RADEON, gpus=("gfx1031",), gpu_names=("Radeon RX 6700 XT",)), wheels))
    at = lines.index("No wheel of this site fits this machine.")
    override, fallback = lines[at + 3 : at + 5]
    assert "export HSA_OVERRIDE_GFX_VERSION=10.3.0" in override
    assert "flash-attention-amd" in fallback
    strix = text_of(report_on(replace(RADEON, gpus=("gfx1151",), gpu_names=("",)), wheels))
    assert "  what works instead: ROCm 7.14 with torch 2.14.1" in strix
    windows = replace(RADEON, python=replace(PYTHON, system="Windows", machine="AMD64", glibc=None))
    assert any("install WSL" in line for line in text_of(report_on(windows, wheels)))


def test_the_fallback_is_offered_only_if_no_wheel_matches(wheels: tuple[PublishedWheel, ...], tmp_path: Path) -> None:
    with_fallback = (*wheels, *as_read([fallback_row(tmp_path)]))
    old = replace(MI300X, gpus=("gfx803",), gpu_names=("Radeon RX 580",))
    report = report_on(old, with_fallback)
    lines = text_of(report)
    at = lines.index(
        "Install flash-attention-amd, the same functions in pure PyTorch, for any GPU that your torch supports:"
    )
    assert lines[at + 1 : at + 3] == [
        "  /venv/bin/python -m pip install --no-deps \\",
        "    --index-url https://wheels.example/simple/rocm64/torch2.9/ck/ flash-attention-amd",
    ]
    fallback = as_json(report)["fallback"]
    assert isinstance(fallback, dict)
    assert fallback["filename"] == "flash_attention_amd-0.1.0-py3-none-any.whl"
    assert report.exit_code == FAILED
    assert report_on(MI300X, with_fallback).fallback is None
    assert report_on(old, wheels).fallback is None


def test_a_working_wheel_from_elsewhere_is_recognised(wheels: tuple[PublishedWheel, ...]) -> None:
    machine = replace(MI300X, flash_attn=InstalledFlashAttn("2.8.3+fromelsewhere", "/venv/lib"))
    report = report_on(machine, wheels)
    lines = text_of(report)
    assert "flash-attn 2.8.3+fromelsewhere works. It is not from this site; you can keep it." in lines
    assert f"To replace it with the matching wheel: {CK_FILE}" in lines
    assert report.exit_code == DONE
    broken = replace(machine, flash_attn=replace(machine.flash_attn or InstalledFlashAttn("", ""), error="ImportError"))
    assert not report_on(broken, wheels, Diagnosis("kind", "problem", "remedy")).replaces_other


def test_a_working_installed_wheel_is_not_reinstalled(wheels: tuple[PublishedWheel, ...]) -> None:
    machine = replace(MI300X, flash_attn=InstalledFlashAttn("2.8.3+rocm64torch2.9", "/venv/lib"))
    lines = text_of(report_on(machine, wheels))
    assert "flash-attn  2.8.3+rocm64torch2.9, imports" in lines
    at = lines.index(f"Already installed: {CK_FILE}")
    assert lines[at + 5 : at + 8] == [
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


def test_only_an_installer_that_exists_is_shown(wheels: tuple[PublishedWheel, ...]) -> None:
    for python, first in (
        (PYTHON, ("/venv/bin/python", "-m", "pip")),
        (replace(PYTHON, has_uv=True), ("/venv/bin/python", "-m", "pip")),
        (replace(PYTHON, pip=None, has_uv=True), ("uv", "pip", "install")),
        (replace(PYTHON, pip=None), ("/venv/bin/python", "-m", "ensurepip")),
    ):
        steps = report_on(replace(MI300X, python=python), wheels).steps
        assert steps[0].commands[0][:3] == first


def test_a_distributions_python_gets_the_environment_first(wheels: tuple[PublishedWheel, ...]) -> None:
    managed = replace(PYTHON, executable="/usr/bin/python3", externally_managed=True, pip=None)
    first, second = report_on(replace(MI300X, python=managed), wheels).steps
    assert first.commands == (("/usr/bin/python3", "-m", "venv", "--system-site-packages", "flash-attn-env"),)
    assert second.commands[0][:3] == ("flash-attn-env/bin/python", "-m", "pip")
    bare, torch, wheel, again = report_on(replace(MI300X, python=managed, torch=None), wheels).steps
    assert bare.commands == (("/usr/bin/python3", "-m", "venv", "flash-attn-env"),)
    assert "torch==2.13.0+rocm7.2" in torch.commands[0]
    assert "flash-attn==2.8.3+rocm72torch2.13" in wheel.commands[0]
    assert again.commands == (("python3", "doctor.py", "--python", "flash-attn-env/bin/python"),)


@pytest.mark.parametrize(
    ("machine", "remedy"),
    [
        (MI300X, "follow the steps below"),
        (replace(MI300X, torch=None), "follow the steps below"),
        (replace(RADEON, gpus=("gfx803",)), "no wheel of this site fits; what works instead is named below"),
        (
            replace(MI300X, flash_attn=InstalledFlashAttn("2.8.3+rocm64torch2.9", "/venv/lib")),
            "nothing else: the matching wheel is installed",
        ),
    ],
)
def test_the_remedy_is_made_from_the_match(wheels: tuple[PublishedWheel, ...], machine: Machine, remedy: str) -> None:
    (found,) = report_on(machine, wheels, Diagnosis("kind", "problem", INSTALL_MATCHING_WHEEL)).diagnoses
    assert found.remedy == remedy


def test_the_installed_triton_decides_whether_a_triton_wheel_matches(wheels: tuple[PublishedWheel, ...]) -> None:
    old = report_on(replace(RADEON, packages={"pytorch-triton-rocm": "3.5.1"}), wheels)
    assert [offer.wheel.filename for offer in old.offers] == [TRITON_FILE]
    new = report_on(replace(RADEON, packages={"pytorch-triton-rocm": "3.9.0"}), wheels)
    assert new.offers == ()
    assert new.torch
    assert new.torch.wheel.filename == TRITON_FILE, "CK has no code for this GPU, so it is no way out"
    assert any("needs Triton >=3.2,<3.9, you have pytorch-triton-rocm 3.9.0" in line for line in text_of(new))


def test_a_gpu_under_an_override_fits_with_a_caution(wheels: tuple[PublishedWheel, ...]) -> None:
    owner = replace(RADEON, gpus=("gfx1031",), gpu_names=("",), environ={"HSA_OVERRIDE_GFX_VERSION": "10.3.0"})
    (offer,) = report_on(owner, wheels).offers
    caution = "HSA_OVERRIDE_GFX_VERSION=10.3.0 makes gfx1031 use code for gfx1030, which AMD does not support"
    assert offer.cautions == (f"may work: {caution}",)


def test_a_gpu_that_only_torch_reports_counts(wheels: tuple[PublishedWheel, ...]) -> None:
    torch = replace(MI300X.torch or InstalledTorch(""), archs=("gfx1100",))
    lines = text_of(report_on(replace(MI300X, torch=torch, gpus=(), gpu_names=()), wheels))
    assert lines[4].startswith("GPU         gfx1100 (Radeon RX 7900 GRE")
    assert lines[6] == "Support     gfx1100: CK may work, Triton works"
    assert "No GPU detected, so GPU compatibility was not checked." not in lines


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
        add_options(parser, ("python3", "doctor.py"))
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
    ran = run(site="", torch="cpu")
    at = next(number for number, line in enumerate(ran.out) if line.startswith("No site given"))
    assert "README" in ran.out[at + 2]
    assert max(map(len, ran.out[at : at + 3])) <= 80
    assert ran.out[at + 3 : at + 5] == ["The torch to install first:", "Install torch 2.13.0 for ROCm 7.2:"]


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
    same = capsys.readouterr().out
    texts = [[line for line in text.splitlines() if "doctor" not in line] for text in (out, same)]
    assert texts[0][:12] == texts[1][:12]
    assert "torch is a CPU build" in out
