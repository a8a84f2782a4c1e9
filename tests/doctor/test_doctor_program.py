"""The doctor as a program: output, JSON, exit codes, and messages about unavailable resources."""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp
from typing import NamedTuple

import pytest

from doctor.fake_machines import MACHINES, TORCHES, fake_torch, make_python, make_root
from doctor.known import FACTS, PROBE_TEXT, WRITTEN
from doctor.releases import BASE, as_read, fallback_row, fallback_rows
from release_factory import quick_gates
from wheelfactory.commands.doctor import add, execute
from wheelfactory.core.cell import Backend
from wheelfactory.core.errors import BAD_INPUT, DONE, FAILED, FactoryError, InputError
from wheelfactory.core.files import ROOT
from wheelfactory.core.published import MANIFEST_NAME
from wheelfactory.doctor import program
from wheelfactory.doctor.fit import find_fit
from wheelfactory.doctor.machine import (
    INSTALL_MATCHING_WHEEL,
    INSTALL_TORCH,
    Device,
    Diagnosis,
    InstalledFlashAttn,
    InstalledTorch,
    Machine,
    Python,
)
from wheelfactory.doctor.program import add_options, diagnose_and_report, install_best, main
from wheelfactory.doctor.published_wheels import ManifestSource, PublishedWheel
from wheelfactory.doctor.report import DoctorReport, make_report
from wheelfactory.doctor.report_output import as_json, report_lines
from wheelfactory.doctor.verdict import Wanted
from wheelfactory.release.manifest import WheelRow, manifest_bytes
from wheelfactory.wheel.corrections import options_refused_by

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
    monkeypatch.setattr(program, "PROBE", PROBE_TEXT)


@pytest.fixture
def release(rows: tuple[WheelRow, ...], tmp_path: Path) -> Path:
    """A release directory with only a manifest."""
    folder = tmp_path / "release"
    folder.mkdir()
    (folder / MANIFEST_NAME).write_bytes(manifest_bytes(rows))
    return folder


def report_on(machine: Machine, wheels: tuple[PublishedWheel, ...], *diagnoses: Diagnosis) -> DoctorReport:
    fit, doctor = find_fit(wheels, machine, FACTS), ("python3", "doctor.py")
    return make_report(machine, diagnoses, FACTS, SOURCE, fit, doctor=doctor)


def text_of(report: DoctorReport) -> list[str]:
    return list(report_lines(report))


def test_the_verdict_comes_first_and_the_details_only_if_asked_for(wheels: tuple[PublishedWheel, ...]) -> None:
    report = report_on(MI300X, wheels)
    short = [
        "Install this: flash-attn 2.8.3, CK backend, for torch 2.9.1+rocm6.4 on gfx942.",
        "Install the matching wheel:",
        "  /venv/bin/python -m pip install --index-url https://wheels.example/simple/rocm64/torch2.9/ck/ "
        "flash-attn==2.8.3+rocm64torch2.9",
    ]
    assert text_of(report) == short
    checks = "archive, identity, record, contents, linking, code-objects, symbols, import"
    assert list(report_lines(report, verbose=True))[: len(short) + 15] == [
        *short,
        "",
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
        "",
    ]


def test_a_manifest_by_itself_has_no_index_so_files_are_installed_by_address(
    wheels: tuple[PublishedWheel, ...],
) -> None:
    einops, ck = (sha256_of_file(wheels, name) for name in ("einops-0.8.2-py3-none-any.whl", CK_FILE))
    exact_einops = f"https://wheels.example/wheels/einops-0.8.2-py3-none-any.whl#sha256={einops}"
    exact_ck = f"https://wheels.example/wheels/{CK_FILE.replace('+', '%2B')}#sha256={ck}"
    alone = replace(SOURCE, has_index=False)
    fit = find_fit(wheels, MI300X, FACTS)
    report = make_report(MI300X, (), FACTS, alone, fit)
    assert text_of(report)[2] == f"  /venv/bin/python -m pip install --no-deps '{exact_einops}' '{exact_ck}'"


def test_where_no_wheel_fits_the_notes_name_one_whose_symbols_the_torch_has(wheels: tuple[PublishedWheel, ...]) -> None:
    ck = next(replace(wheel, other_torches=("2.8",)) for wheel in wheels if wheel.filename == CK_FILE)
    assert report_on(MI300X, (ck,)).notes == (), "it fits"
    assert MI300X.torch
    report = report_on(replace(MI300X, torch=replace(MI300X.torch, version="2.8.0+rocm6.4")), (ck,))
    why = "because no wheel is for torch 2.8 (you have 2.8.0+rocm6.4)"
    assert report.verdict.line == f"Install this: flash-attn 2.8.3, CK backend, with another torch on gfx942, {why}."
    (note,) = [note for note in report.notes if "measured" in note]
    assert note.startswith(f"May work, symbols measured: {CK_FILE} is built with torch 2.9; yours defines all symbols")
    assert f"/venv/bin/python -m pip install --no-deps '{ck.url}#sha256={ck.sha256}'" in note


def test_an_unverified_wheel_is_named_so(rows: tuple[WheelRow, ...]) -> None:
    triton = next(row for row in rows if row.filename == TRITON_FILE)
    (wheel,) = as_read([triton.model_copy(update={"gates": quick_gates(str(triton.cell))})])
    report = report_on(MI300X, (replace(wheel, verified_on=("gfx942",)),))
    assert "Caution: the wheel is not verified (not checked: numbers)" in text_of(report)
    assert "  tested on gfx942" in report_lines(report, verbose=True)
    (offer,) = json.loads(json.dumps(as_json(report)))["fitting"]
    assert offer["unverified"] == "not checked: numbers"
    assert {"window_size", "softcap", "block_table"} <= set(offer["refused_options"])


def test_another_torch_brings_its_torchvision_and_names_what_pins_torch(wheels: tuple[PublishedWheel, ...]) -> None:
    cuda = InstalledTorch("2.9.1+cu128", cuda="12.8")
    packages, pins = {"torchvision": "0.24.1", "vllm": "0.33.0"}, {"vllm": "==2.14.0", "torchvision": "==2.9.1"}
    machine = replace(RADEON, torch=cuda, packages=packages, torch_pins=pins)
    assert text_of(report_on(machine, wheels, Diagnosis("torch", "a CUDA build", INSTALL_TORCH))) == [
        "Install this: flash-attn 2.8.3, Triton backend, with another torch on gfx1030.",
        "Problem: a CUDA build",
        "1. Install torch 2.9.1 for ROCm 6.4:",
        "     /venv/bin/python -m pip install --upgrade torch==2.9.1+rocm6.4 torchvision "
        "--index-url https://download.pytorch.org/whl/rocm6.4",
        "2. Install the matching wheel:",
        "     /venv/bin/python -m pip install --index-url https://wheels.example/simple/rocm64/torch2.9/triton/ "
        "flash-attn==2.8.3+rocm64torch2.9triton",
        "3. Run the doctor again:",
        "     python3 doctor.py",
        "Limit: with Triton 3.4 and later, the causal backward in bf16 of 2.8.3 fails on gfx1030: train in fp16.",
        "Caution: vllm 0.33.0 requires torch==2.14.0: another torch may break it.",
    ]


def test_pip_is_isolated_where_its_configuration_adds_an_index(wheels: tuple[PublishedWheel, ...]) -> None:
    python = replace(PYTHON, pip_extra="PIP_EXTRA_INDEX_URL")
    lines = text_of(report_on(replace(MI300X, python=python), wheels))
    assert lines[2].startswith("  /venv/bin/python -m pip install --isolated --index-url ")
    assert "--isolated, because PIP_EXTRA_INDEX_URL adds an index whose torch could replace yours." in lines


def test_the_closest_wheels_are_details(wheels: tuple[PublishedWheel, ...]) -> None:
    report = report_on(replace(RADEON, gpus=("gfx803",), gpu_names=("Radeon RX 580",)), wheels)
    lines = list(report_lines(report, verbose=True))
    at = lines.index("Closest wheels and why they do not match:")
    assert lines[at + 1] == f"  {CK_FILE}: has no code for gfx803 (Radeon RX 580)"
    assert len(lines) == at + 1 + 5
    assert not any("Closest wheels" in line for line in text_of(report))


def test_a_working_install_is_kept_and_another_wheel_is_a_choice(wheels: tuple[PublishedWheel, ...]) -> None:
    elsewhere = replace(MI300X, flash_attn=InstalledFlashAttn("2.8.3+fromelsewhere", "/venv/lib"))
    report = report_on(elsewhere, wheels)
    assert text_of(report) == [
        "Works; keep it: flash-attn 2.8.3+fromelsewhere imports with torch 2.9.1+rocm6.4 on gfx942.",
        "Not needed, but possible: 2.8.3 with CK (--flash-attn 2.8.3 --backend ck).",
        "Not needed, but possible: 2.8.3 with Triton (--flash-attn 2.8.3 --backend triton).",
    ]
    assert report.exit_code == DONE
    wanted = Wanted(flash_attn="2.7.4.post1")
    fit = find_fit(wheels, elsewhere, FACTS, flash_attn="2.7.4.post1")
    asked = make_report(elsewhere, (), FACTS, SOURCE, fit, wanted)
    assert text_of(asked)[0].startswith("Install this: flash-attn 2.7.4.post1, CK backend")


def test_without_a_gpu_no_wheel_for_some_gpus_is_offered(wheels: tuple[PublishedWheel, ...]) -> None:
    report = report_on(replace(MI300X, gpus=(), gpu_names=()), wheels)
    assert [offer.wheel.filename for offer in report.offers] == [TRITON_FILE]
    assert "No GPU is visible, so it was not checked whether the wheel has code for yours." in report.notes


def sha256_of_file(wheels: tuple[PublishedWheel, ...], name: str) -> str:
    return next(wheel.sha256 for wheel in wheels if wheel.filename == name)


def test_the_fallback_is_offered_only_if_no_wheel_matches(wheels: tuple[PublishedWheel, ...], tmp_path: Path) -> None:
    with_fallback = (*wheels, *as_read(fallback_rows(tmp_path)))
    old = replace(MI300X, gpus=("gfx803",), gpu_names=("Radeon RX 580",))
    report = report_on(old, with_fallback)
    lines = text_of(report)
    command = "     /venv/bin/python -m pip install --no-deps --index-url https://wheels.example/simple/fallback/"
    at = lines.index(f"{command} flash-attention-amd")
    title = "2. If a program imports flash_attn, install it by that name too:"
    assert lines[at + 1 : at + 3] == [title, f"{command} flash-attn"]
    assert not any(line.startswith("Instead") for line in lines), "the steps say it"
    fallback = as_json(report)["fallback"]
    assert isinstance(fallback, dict)
    assert fallback["filename"] == "flash_attention_amd-0.1.0-py3-none-any.whl"
    assert report.exit_code == FAILED
    assert report_on(MI300X, with_fallback).fallback is None
    assert report_on(old, wheels).fallback is None


CHECKED = InstalledFlashAttn(
    "2.8.3+rocm64torch2.9",
    "/venv/lib",
    build_record={"corrections": {"flash_attn/flash_attn_interface.py": [15]}},
    extension="/venv/lib/flash_attn_2_cuda.so",
    has_triton_backend=True,
)


@pytest.mark.parametrize(
    ("installed", "environ", "refused"),
    [
        pytest.param(CHECKED, {}, ("float32", "softcap", "cache_leftpad"), id="CK"),
        pytest.param(
            CHECKED,
            {"FLASH_ATTENTION_TRITON_AMD_ENABLE": "TRUE"},
            options_refused_by("2.8.3", Backend.TRITON),
            id="CK wheel that uses Triton",
        ),
        pytest.param(replace(CHECKED, extension=None), {}, options_refused_by("2.8.3", Backend.TRITON), id="Triton"),
        pytest.param(replace(CHECKED, build_record={}), {}, (), id="wheel without checks"),
        pytest.param(None, {}, (), id="none"),
    ],
)
def test_the_options_that_the_installed_wheel_refuses_are_named_with_and_without_a_site(
    wheels: tuple[PublishedWheel, ...],
    installed: InstalledFlashAttn | None,
    environ: Mapping[str, str],
    refused: tuple[str, ...],
) -> None:
    machine = replace(MI300X, flash_attn=installed, environ=environ)
    for report in (report_on(machine, wheels), make_report(machine, (), FACTS)):
        assert as_json(report)["refused_options"] == list(refused)
        line = f"Options     flash-attn raises an error for {'; '.join(refused)}"
        assert (line in report_lines(report, verbose=True)) == bool(refused)


def test_a_broken_installed_wheel_is_reinstalled(wheels: tuple[PublishedWheel, ...]) -> None:
    broken = InstalledFlashAttn("2.8.3+rocm64torch2.9", "/venv/lib", error="ImportError: file too short")
    report = report_on(replace(MI300X, flash_attn=broken), wheels, Diagnosis("symbol", "wrong torch", "another wheel"))
    assert not report.offers[0].installed
    assert "--force-reinstall" in report.offers[0].pip
    assert "--reinstall" in report.offers[0].uv
    assert "--force-reinstall" not in report.offers[1].pip  # that one is not installed
    assert report.exit_code == FAILED


def test_only_an_installer_that_exists_is_shown(wheels: tuple[PublishedWheel, ...]) -> None:
    for python, first in (
        (PYTHON, "/venv/bin/python -m pip "),
        (replace(PYTHON, has_uv=True), "/venv/bin/python -m pip "),
        (replace(PYTHON, pip=None, has_uv=True), "uv pip install "),
        (replace(PYTHON, pip=None), "/venv/bin/python -m ensurepip "),
    ):
        steps = report_on(replace(MI300X, python=python), wheels).steps
        assert steps[0].commands[0].startswith(first)


def test_a_distributions_python_gets_the_environment_first(wheels: tuple[PublishedWheel, ...]) -> None:
    managed = replace(PYTHON, executable="/usr/bin/python3", externally_managed=True, pip=None)
    first, second = report_on(replace(MI300X, python=managed), wheels).steps
    assert first.commands == ("/usr/bin/python3 -m venv --system-site-packages flash-attn-env",)
    assert second.commands[0].startswith("flash-attn-env/bin/python -m pip ")
    bare, torch, wheel, again = report_on(replace(MI300X, python=managed, torch=None), wheels).steps
    assert bare.commands == ("/usr/bin/python3 -m venv flash-attn-env",)
    assert "torch==2.9.1+rocm6.4" in torch.commands[0]
    assert "flash-attn==2.8.3+rocm64torch2.9" in wheel.commands[0]
    assert again.commands == ("python3 doctor.py --python flash-attn-env/bin/python",)


@pytest.mark.parametrize(
    ("machine", "remedy"),
    [
        (MI300X, "follow the steps"),
        (replace(MI300X, torch=None), "follow the steps"),
        (replace(RADEON, gpus=("gfx803",)), "no wheel of this site fits"),
    ],
)
def test_the_remedy_is_made_from_the_match(wheels: tuple[PublishedWheel, ...], machine: Machine, remedy: str) -> None:
    (found,) = report_on(machine, wheels, Diagnosis("kind", "problem", INSTALL_MATCHING_WHEEL)).diagnoses
    assert found.remedy == remedy


def test_a_torch_is_named_only_when_the_problems_before_it_are_fixed() -> None:
    without_torch, hidden = Diagnosis("no torch", "none", INSTALL_TORCH), Diagnosis("no GPU", "hidden", "show it")
    machine = replace(MI300X, torch=None)
    titles = [step.title for step in make_report(machine, (hidden, without_torch), FACTS).steps]
    assert titles == ["Show it", "none: the doctor names the right one when this is done"]
    assert any("Install torch" in step.title for step in make_report(machine, (without_torch,), FACTS).steps)


def test_without_a_site_the_exit_code_is_of_the_problems() -> None:
    assert make_report(MI300X, (), FACTS).exit_code == DONE
    assert make_report(MI300X, (Diagnosis("kind", "problem", "remedy"),), FACTS).exit_code == FAILED


@pytest.mark.parametrize(
    ("machine", "answer", "last", "error"),
    [
        (MI300X, "later\n", "Nothing was installed.", ""),
        (MI300X, "", "", "nothing was installed: no answer on stdin"),
        (replace(MI300X, python=replace(PYTHON, pip=None)), "y\n", "", "no installer: neither pip in /venv/bin/python"),
        (replace(RADEON, gpus=("gfx803",)), "y\n", "Nothing was installed.", ""),
    ],
    ids=["another answer", "no answer", "no pip and no uv", "no wheel"],
)
def test_nothing_is_installed_without_a_yes_an_installer_and_a_wheel(
    wheels: tuple[PublishedWheel, ...],
    monkeypatch: pytest.MonkeyPatch,
    machine: Machine,
    answer: str,
    last: str,
    error: str,
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
    shown: list[str] = []
    try:
        assert install_best(report_on(machine, wheels), FACTS, "", {}, shown.append) == FAILED
    except FactoryError as caught:
        assert str(caught).startswith(error or "no error")
    else:
        assert (shown[-1], error) == (last, "")


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
    keys = re.findall(r"^- `([a-z0-9_.\[\]{},]+)`", text.partition("## JSON")[2], re.MULTILINE)
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
        executable = make_python(Path(mkdtemp(dir=tmp_path)), working if torch == "working" else TORCHES[torch])
        out: list[str] = []
        options = parser.parse_args(arguments, argparse.Namespace(environ={"PATH": os.environ["PATH"]}))
        given = (options, executable, FACTS, PROBE_TEXT, site)
        try:
            return Ran(diagnose_and_report(*given, show=out.append, tell=lambda _: None, root=root), out, None)
        except FactoryError as error:
            return Ran(error.exit_code, out, error)

    return run_doctor


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
    assert ran.out
    assert not any("address of a site" in line for line in ran.out)
    report = json.loads("\n".join(run("--json", site=str(tmp_path)).out))
    assert report["error"]["what"] == "cannot read the manifest"
    assert (report["site"], report["exit_code"], len(report["machine"]["gpus"])) == (str(tmp_path), BAD_INPUT, 8)


def test_without_a_site_the_output_explains_how_to_pass_one(run: Run) -> None:
    ran = run(site="", torch="cpu")
    assert ran.out[-1] == "To find a wheel, pass the address of a site, or a manifest.jsonl."
    assert any(line.endswith("Install torch 2.13.0 for ROCm 7.2:") for line in ran.out)


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


def as_command(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    parser = argparse.ArgumentParser()
    add(parser)
    code = execute(parser.parse_args([*map(str, arguments)], argparse.Namespace(environ=os.environ)))
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
