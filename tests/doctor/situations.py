"""The machines of cases.yaml as values of the doctor, and the release that they are put to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from doctor.known import KNOWN
from doctor.releases import fallback_rows
from report_rows import einops_row
from search_rows import row_of
from wheelfactory.core.published import MANIFEST_NAME
from wheelfactory.doctor.machine import Device, InstalledFlashAttn, InstalledTorch, Machine, Python, Requirement
from wheelfactory.matrix.expand import expand
from wheelfactory.release.manifest import manifest_bytes

CASES: Mapping[str, Mapping[str, Any]] = {
    case["name"]: case for case in yaml.safe_load(Path(__file__).with_name("cases.yaml").read_text(encoding="utf-8"))
}

_TAGS = {"3.14t": "cp314t", "PyPy 3.10": "pp310"}
_SITE_PACKAGES = "/venv/lib/python3.11/site-packages"
_INSTINCT = ("gfx90a", "gfx942", "gfx950")


def full_release(folder: Path) -> Path:
    """Write a release with a wheel for each cell of the matrix, einops and both fallbacks; return its folder."""
    rows = [row_of(KNOWN, cell, url=None) for cell in expand(KNOWN).cells]
    (folder / MANIFEST_NAME).write_bytes(manifest_bytes([*rows, einops_row(folder), *fallback_rows(folder)]))
    (folder / "simple").mkdir()
    return folder


def machine_of(case: Mapping[str, Any]) -> Machine:
    """Return the machine of a case."""
    pairs = [line.partition(" ") for line in case.get("gpus", ())]
    installed = dict(case.get("installed", {}))
    flash_attn = _flash_attn(case.get("import", ""), installed)
    return Machine(
        _python(case),
        torch=_torch(case["torch"]) if "torch" in case else None,
        flash_attn=flash_attn,
        packages=installed,
        rocm=case.get("rocm") or installed.get("rocm-sdk-core"),
        rocm_path="/opt/rocm" if "rocm" in case else None,
        gpus=tuple(arch for arch, _, _ in pairs),
        gpu_names=tuple(name for _, _, name in pairs),
        has_wsl_runtime="librocdxg.so.1" in _devices(case),
        devices=tuple(_device(path, text) for path, text in _devices(case).items() if path.startswith("/dev/")),
        container=case.get("where") if case.get("where") != "windows" else None,
        user=case.get("user", "u"),
        groups=tuple(case.get("groups", ("u", "video", "render"))),
        environ=case.get("environment", {}),
        **_module(case.get("import", ""), installed),
    )


def image_cases() -> Mapping[str, Mapping[str, Any]]:
    """Return a machine with an MI300X in each image of the matrix, by its tag; AMD's torch brings Triton's version."""
    tritons = {version.rpartition(".")[0]: facts.triton for version, facts in KNOWN.torch.items()}
    found = {}
    for image in (image for rocm in KNOWN.rocm.values() for image in rocm.images):
        rocm, torch = re.findall(r"rocm([\d.]+)_", image.tag)[0], str(image.torch)
        triton = tritons.get(torch.rpartition(".")[0])
        found[image.tag] = {
            "name": image.tag,
            "gpus": ["gfx942 Instinct MI300X"],
            "where": "docker",
            "system": ["Linux", "x86_64", image.glibc],
            "python": image.python,
            "rocm": rocm,
            "torch": {"version": f"{torch}+rocm{rocm}.git0123abc", "hip": f"{rocm}.1", "sees": ["gfx942"]},
            "installed": {"triton": f"{triton}+rocm{rocm}"} if triton else {},
        }
    return found


def _devices(case: Mapping[str, Any]) -> Mapping[str, str]:
    found = case.get("devices")
    if found is None:
        found = {"/dev/kfd": "opens" if case.get("gpus") else "missing"}
    if "/dev/dri" not in found and not any("renderD" in path for path in found) and found["/dev/kfd"] == "opens":
        found = {**found, "/dev/dri/renderD128": "opens"}
    return found


def _device(path: str, text: str) -> Device:
    group = re.search(r"group (\w+)", text)
    return Device(path, text != "missing", usable=text.startswith("opens"), group=group[1] if group else "render")


def _python(case: Mapping[str, Any]) -> Python:
    version = case.get("python", "3.11")
    tag = _TAGS.get(version, f"cp{version.replace('.', '')}")
    system, machine, *glibc = case.get("system", ("Linux", "x86_64", "2.36"))
    return Python(
        "/usr/bin/python3"
        if "externally managed" in case["name"] or "distribution" in case["name"]
        else "/venv/bin/python",
        f"{version.rstrip('t').rpartition(' ')[2]}.7",
        tag,
        system=system,
        machine=machine,
        glibc=glibc[0] if glibc else None,
        pip=None if case["name"] == "neither pip nor uv" else "25.0",
        externally_managed="distribution" in case["name"],
    )


def _torch(facts: Mapping[str, Any]) -> InstalledTorch:
    version, sees = facts["version"], tuple(facts.get("sees", ()))
    error = facts.get("error", "")
    crash = re.search(r"SIG\w+", error) if error.startswith("imports;") else None
    rocm = version.partition("+rocm")[2]
    listed = facts.get("arch-list", ())
    archs = KNOWN.rocm[rocm].archs if rocm in KNOWN.rocm and listed else ()
    without = listed["release-without"] if isinstance(listed, dict) else ()
    return InstalledTorch(
        version,
        hip=facts.get("hip"),
        cuda=facts.get("cuda"),
        cxx11_abi=None if error and not crash else True,
        sees_gpu=None if error else bool(sees),
        archs=sees if "hip" in facts else (),
        error="" if crash else error,
        gpu_error=f"killed by {crash[0]}" if crash else "",
        arch_list=tuple(listed) if isinstance(listed, list) else tuple(arch for arch in archs if arch not in without),
        unmet=(Requirement(*facts["unmet"]),) if "unmet" in facts else (),
    )


def _flash_attn(text: str, installed: dict[str, str]) -> InstalledFlashAttn | None:
    version = installed.pop("flash-attn", None)
    if version is None:
        return None
    compiled = ("flash_attn_2_cuda" in text and "No module" not in text) or text.startswith("imports")
    archs = _INSTINCT if "build record" in text else ()
    error = text if re.match(r"\w+Error: ", text) else ""
    return InstalledFlashAttn(
        version,
        _SITE_PACKAGES,
        extension=f"{_SITE_PACKAGES}/flash_attn_2_cuda.so" if compiled else None,
        extension_archs=archs,
        has_device_code=False if "no code object" in text else None,
        error=error,
        has_triton_backend=not compiled or "Triton backend" in text,
    )


def _module(text: str, installed: Mapping[str, str]) -> dict[str, Any]:
    if "folder" in text:
        return {"foreign_flash_attn": "/home/u/flash-attention"}
    if "comes from" in text:
        name = text.rpartition(" ")[2]
        return {"foreign_flash_attn": _SITE_PACKAGES, "foreign_owner": f"{name} {installed[name]}"}
    return {}
