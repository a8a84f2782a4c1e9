"""Forty fake machines, put to the doctor.py of a site: each gets the advice that a maintainer would give."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from doctor.known import WRITTEN
from doctor.releases import fallback_row
from report_rows import einops_row
from search_rows import row_of
from wheelfactory.core.cell import Cell
from wheelfactory.core.files import MATRIX
from wheelfactory.core.published import MANIFEST_NAME
from wheelfactory.matrix.load import load_matrix
from wheelfactory.release.manifest import manifest_bytes
from wheelfactory.site.single_file import build_single_file

CELLS = (
    *(f"fa2.8.3-rocm6.4-torch2.9.1-cp3{minor}-ck" for minor in (10, 11, 12)),
    *("fa2.8.3-rocm7.2-torch2.13.0-cp312-ck", "fa2.8.3-rocm6.2-torch2.5.1-cp311-ck"),
    *("fa2.8.3-rocm6.4-torch2.9.1-py3-triton", "fa2.8.3-rocm7.2-torch2.13.0-py3-triton"),
)
CK64, TRITON64 = "flash-attn==2.8.3+rocm64torch2.9", "flash-attn==2.8.3+rocm64torch2.9triton"
CK72, TRITON72 = "flash-attn==2.8.3+rocm72torch2.13", "flash-attn==2.8.3+rocm72torch2.13triton"
TORCH72 = "torch==2.13.0+rocm7.2"
AGAIN = "Run the doctor again:"

ROCM64: Mapping[str, Any] = {"version": "2.9.1+rocm6.4", "hip": "6.4.43482", "cxx11_abi": True, "sees_gpu": True}
ROCM72: Mapping[str, Any] = {"version": "2.13.0+rocm7.2", "hip": "7.2.53211", "cxx11_abi": True, "sees_gpu": True}
ROCM62: Mapping[str, Any] = {"version": "2.5.1+rocm6.2", "hip": "6.2.41134", "cxx11_abi": False, "sees_gpu": True}
CPU: Mapping[str, Any] = {"version": "2.9.1+cpu", "cxx11_abi": True, "sees_gpu": False}
CUDA: Mapping[str, Any] = {"version": "2.9.1+cu128", "cuda": "12.8", "cxx11_abi": True, "sees_gpu": False}
DEBIAN = {"executable": "/usr/bin/python3", "externally_managed": True}
CUDA_WHEEL = {"version": "2.8.3+cu12torch2.9cxx11abiTRUE", "location": "/v", "error": "ImportError: libcudart.so"}
OVERRIDE = {"HSA_OVERRIDE_GFX_VERSION": "10.3.0"}


@pytest.fixture(scope="module")
def doctor(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The doctor.py of a site, loaded as a module."""
    path = tmp_path_factory.mktemp("doctor") / "doctor.py"
    path.write_text(build_single_file(WRITTEN))
    module = ModuleType("doctor_py")
    sys.modules["doctor_py"] = module  # dataclasses look their module up
    loader = SourceFileLoader("doctor_py", str(path))
    loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release directory with a manifest and indexes."""
    folder, matrix = tmp_path_factory.mktemp("release"), load_matrix(MATRIX)
    rows = [row_of(matrix, Cell.parse(cell), url=None) for cell in CELLS]
    (folder / MANIFEST_NAME).write_bytes(manifest_bytes([*rows, einops_row(folder), fallback_row(folder)]))
    (folder / "simple").mkdir()
    return folder


def machine(
    *gpus: str, torch: Mapping[str, Any] | None = None, python: Mapping[str, Any] | None = None, **rest: Any
) -> dict[str, Any]:
    """The values of a machine: its GPUs, what its torch says, and how its Python differs from a venv's 3.12."""
    return {"gpus": gpus, "torch": torch, "python": python or {}, **rest}


MACHINES = {
    # name: (machine, what the advice contains, what it must not contain)
    "MI300X": (machine("gfx942", torch=ROCM64), [CK64, "--backend triton"], [AGAIN, TORCH72]),
    "8 x MI300X": (machine(*["gfx942"] * 8, torch=ROCM64), ["8 x gfx942", CK64], [AGAIN]),
    "MI300X with ROCm 7.2": (machine("gfx942", torch=ROCM72), [CK72], [AGAIN]),
    "MI300X without torch": (machine("gfx942"), ["1. Install torch", TORCH72, "2. Install", CK72, f"3. {AGAIN}"], []),
    "MI300X with CPU torch": (machine("gfx942", torch=CPU), ["torch is a CPU build", TORCH72, CK72, AGAIN], []),
    "MI300X with CUDA torch": (machine("gfx942", torch=CUDA), ["torch is a CUDA build", TORCH72, CK72, AGAIN], []),
    "MI350X": (machine("gfx950", torch=ROCM72), [CK72], []),
    "MI350X with ROCm 6.4": (machine("gfx950", torch=ROCM64), [TORCH72, CK72], []),
    "MI210 with the old C++ ABI": (
        machine("gfx90a", torch=ROCM62, python={"version": "3.11.7", "tag": "cp311"}),
        ["flash-attn==2.8.3+rocm62torch2.5"],
        [AGAIN],
    ),
    "MI100": (machine("gfx908", torch=ROCM64), ["CK does not work, Triton works", TRITON64], [CK64 + "\n"]),
    "MI50": (
        machine("gfx906", torch=ROCM64),
        ["No wheel of this site fits", "Triton kernels fail on gfx906", "flash-attention-amd"],
        ["install the matching wheel", "HSA_OVERRIDE"],
    ),
    "RX 7900 XTX": (
        machine("gfx1100", torch=ROCM64),
        ["CK may work, Triton works", TRITON64],
        [AGAIN, CK64 + "\n"],
    ),
    "RX 7900 XTX without torch": (
        machine("gfx1100"),
        ["1. Install torch", TORCH72, TRITON72, f"3. {AGAIN}"],
        [CK72 + "\n"],
    ),
    "RX 7900 XTX with Triton 3.9": (
        machine("gfx1100", torch=ROCM64, packages={"pytorch-triton-rocm": "3.9.0"}),
        ["needs Triton >=3.2,<3.9, you have pytorch-triton-rocm 3.9.0", TORCH72, TRITON72],
        [CK64 + "\n", CK72 + "\n"],
    ),
    "RX 7900 XTX with Debian's Python": (
        machine("gfx1100", python=DEBIAN),
        [
            "1. Create an environment",
            "/usr/bin/python3 -m venv flash-attn-env",
            f"4. {AGAIN}",
            "--python flash-attn-env",
        ],
        ["/usr/bin/python3 -m pip"],
    ),
    "MI300X with Debian's Python and torch": (
        machine("gfx942", torch=ROCM64, python=DEBIAN),
        ["venv --system-site-packages flash-attn-env", "flash-attn-env/bin/python -m pip install", CK64],
        [AGAIN, "/usr/bin/python3 -m pip"],
    ),
    "uv alone": (
        machine("gfx942", torch=ROCM64, python={"pip": None, "has_uv": True}),
        ["uv pip install --python /venv/bin/python"],
        ["-m pip", "ensurepip"],
    ),
    "pip and uv": (
        machine("gfx942", torch=ROCM64, python={"has_uv": True}),
        ["/venv/bin/python -m pip install"],
        ["uv pip"],
    ),
    "neither pip nor uv": (
        machine("gfx942", torch=ROCM64, python={"pip": None}),
        ["1. Install pip, which this Python lacks:", "-m ensurepip --upgrade", "2. Install flash-attn"],
        ["uv pip"],
    ),
    "RX 6800": (machine("gfx1030", torch=ROCM64), [TRITON64], [CK64 + "\n"]),
    "RX 6700 XT": (
        machine("gfx1031", torch=ROCM64),
        ["Triton does not work", "export HSA_OVERRIDE_GFX_VERSION=10.3.0", "at your own risk", "flash-attention-amd"],
        ["install the matching wheel"],
    ),
    "RX 6700 XT with an override": (
        machine("gfx1031", torch=ROCM64, environ=OVERRIDE),
        [TRITON64, "Caution: may work: HSA_OVERRIDE_GFX_VERSION=10.3.0 makes gfx1031 use code for gfx1030"],
        [],
    ),
    "RX 5700 XT": (
        machine("gfx1010", torch=ROCM64),
        ["PyTorch does not build torch for gfx1010", "flash-attention-amd"],
        ["HSA_OVERRIDE", AGAIN],
    ),
    "RX 580": (machine("gfx803", torch=ROCM64), ["No wheel of this site fits", "flash-attention-amd"], [AGAIN]),
    "Strix Halo with ROCm 7.2": (
        machine("gfx1151", torch=ROCM72),
        ["Triton may work", "Caution: may work: flash-attn's Triton backend does not list gfx1151", TRITON72],
        [AGAIN],
    ),
    "Strix Halo with ROCm 6.4": (machine("gfx1151", torch=ROCM64), ["Caution: may work", TORCH72, TRITON72], []),
    "Strix Point without torch": (machine("gfx1150"), ["Caution: may work", TORCH72, TRITON72, AGAIN], []),
    "Radeon 780M with ROCm 7.2": (machine("gfx1103", torch=ROCM72), ["Caution: may work", TRITON72], []),
    "RX 9070": (machine("gfx1201", torch=ROCM72), [TRITON72], [CK72 + "\n"]),
    "integrated GPU and RX 7900 XTX": (
        machine("gfx1036", "gfx1100", torch=ROCM64),
        [TRITON64, "first run `export HIP_VISIBLE_DEVICES=1`"],
        ["No wheel of this site fits"],
    ),
    "a GPU that only torch reports": (
        machine(torch={**ROCM64, "archs": ("gfx1100",)}),
        ["GPU         gfx1100", TRITON64],
        ["No GPU detected"],
    ),
    "no GPU at all": (machine(torch=ROCM64), [CK64, "No GPU detected, so GPU compatibility was not checked."], []),
    "Windows": (
        machine("gfx1100", torch=ROCM64, python={"system": "Windows", "machine": "AMD64", "glibc": None}),
        ["wheels are for Linux: install WSL"],
        [AGAIN, TRITON64],
    ),
    "Alpine": (
        machine("gfx942", torch=ROCM64, python={"glibc": None}),
        [TRITON64],
        [CK64 + "\n"],
    ),
    "an old glibc": (machine("gfx942", torch=ROCM64, python={"glibc": "2.17"}), [TRITON64], [CK64 + "\n"]),
    "free-threaded Python": (machine("gfx942", torch=ROCM64, python={"tag": "cp312t"}), [TRITON64], [CK64 + "\n"]),
    "Python 3.14": (
        machine("gfx942", torch=ROCM72, python={"version": "3.14.0", "tag": "cp314"}),
        [TRITON72],
        [CK72 + "\n"],
    ),
    "Python 3.9": (
        machine("gfx942", torch=ROCM64, python={"version": "3.9.18", "tag": "cp39"}),
        [TRITON64],
        [CK64 + "\n"],
    ),
    "a working wheel from elsewhere": (
        machine("gfx942", torch=ROCM64, flash_attn={"version": "2.8.3+elsewhere", "location": "/venv/lib"}),
        ["flash-attn 2.8.3+elsewhere works. It is not from this site; you can keep it.", "To replace it"],
        ["Problem:"],
    ),
    "the matching wheel, installed": (
        machine("gfx942", torch=ROCM64, flash_attn={"version": "2.8.3+rocm64torch2.9", "location": "/venv/lib"}),
        ["Already installed", "wheelfactory verify --from"],
        ["Install flash-attn"],
    ),
    "the matching wheel, broken": (
        machine(
            "gfx942",
            torch=ROCM64,
            flash_attn={"version": "2.8.3+rocm64torch2.9", "location": "/v", "error": "OSError: file too short"},
        ),
        ["Problem: files of flash-attn", "follow the steps below", "--force-reinstall", CK64],
        ["Already installed"],
    ),
    "a CUDA wheel on a Radeon": (
        machine(
            "gfx1100",
            torch=ROCM64,
            flash_attn={
                "version": "2.8.3+cu12torch2.9cxx11abiTRUE",
                "location": "/v",
                "error": "ImportError: libcudart.so",
            },
        ),
        ["is built for CUDA", "Fix:     follow the steps below", TRITON64],
        [CK64 + "\n"],
    ),
    "a CUDA wheel on a GPU without wheels": (
        machine(
            "gfx1010",
            torch=ROCM64,
            flash_attn={
                "version": "2.8.3+cu12torch2.9cxx11abiTRUE",
                "location": "/v",
                "error": "ImportError: libcudart.so",
            },
        ),
        ["is built for CUDA", "no wheel of this site fits; what works instead is named below"],
        ["install the matching wheel", "follow the steps"],
    ),
}


def made(doctor: ModuleType, values: dict[str, Any]) -> Any:
    """The machine as a value of doctor.py."""
    base = {"executable": "/venv/bin/python", "version": "3.12.7", "tag": "cp312", "glibc": "2.36", "pip": "25.0"}
    python = doctor.Python(**{**base, **values["python"]})
    torch = doctor.InstalledTorch(**values["torch"]) if values["torch"] else None
    own = values.get("flash_attn")
    flash_attn = doctor.InstalledFlashAttn(**own) if own else None
    rest = {name: value for name, value in values.items() if name not in ("python", "torch", "flash_attn")}
    return doctor.Machine(python, torch, flash_attn, gpu_names=("",) * len(values["gpus"]), **rest)


def advice(
    doctor: ModuleType, monkeypatch: pytest.MonkeyPatch, values: dict[str, Any], site: str, *arguments: str
) -> tuple[int, str]:
    """Exit code and output of doctor.py on a machine."""
    found = made(doctor, values)
    monkeypatch.setattr(doctor, "detect_machine", lambda *_: found)
    parser = argparse.ArgumentParser()
    doctor.add_options(parser, ("python3", "doctor.py"))
    options, lines = parser.parse_args(arguments), list[str]()
    facts = doctor.DoctorFacts.parse(doctor.FACTS)
    python = found.python.executable
    report = doctor.diagnose_and_report
    code = report(options, python, facts, "", site, {}, show=lines.append, tell=lambda _: None)
    return code, "\n".join(lines) + "\n"


def test_there_are_forty_machines() -> None:
    assert len(MACHINES) >= 40


@pytest.mark.parametrize("name", MACHINES)
def test_each_machine_gets_the_advice_of_a_maintainer(
    doctor: ModuleType, release: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    values, contains, lacks = MACHINES[name]
    _, text = advice(doctor, monkeypatch, values, str(release))
    assert [part for part in contains if part not in text] == [], text
    assert [part for part in lacks if part in text] == [], text


@pytest.mark.parametrize("name", MACHINES)
def test_advice_is_never_a_constant_above_a_dead_end(
    doctor: ModuleType, release: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    _, text = advice(doctor, monkeypatch, MACHINES[name][0], str(release))
    assert "install the matching wheel" not in text
    assert "give the doctor a site" not in text
    if "No wheel of this site fits" in text:
        assert "follow the steps" not in text
    steps = [int(number) for number in re.findall(r"^(\d)\. ", text, re.MULTILINE)]
    assert steps == list(range(1, len(steps) + 1))


@pytest.mark.parametrize(
    ("values", "contains", "lacks"),
    [
        pytest.param(machine("gfx942"), ["Install torch 2.13.0 for ROCm 7.2:"], [], id="MI300X"),
        pytest.param(machine("gfx1100", torch=CPU), ["Install torch 2.14.1 for ROCm 7.14:"], [], id="RX 7900 XTX"),
        pytest.param(machine("gfx942", torch=ROCM64), ["README"], ["Install torch"], id="with a torch that works"),
        pytest.param(machine("gfx1031"), ["HSA_OVERRIDE_GFX_VERSION"], ["Install torch"], id="RX 6700 XT"),
    ],
)
def test_without_a_site_it_says_which_torch_and_where_sites_are_listed(
    doctor: ModuleType, monkeypatch: pytest.MonkeyPatch, values: dict[str, Any], contains: list[str], lacks: list[str]
) -> None:
    _, text = advice(doctor, monkeypatch, values, "")
    assert "The README of wheelfactory says where sites are listed" in text
    assert [part for part in contains if part not in text] == [], text
    assert [part for part in lacks if part in text] == [], text
