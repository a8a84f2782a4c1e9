"""Builds for containers in tests: releases that consist of a setup.py, and a matrix with them."""

from __future__ import annotations

import hashlib
import io
import tarfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from few_archs import FEW_ARCHS
from wheelfactory.build.engine import RUN_LABEL, Engine
from wheelfactory.build.executor import BuildCommand
from wheelfactory.build.sources import Source
from wheelfactory.core.cell import Backend, Cell
from wheelfactory.core.files import BUILD_SCRIPT, MATRIX, ROOT, TOOLCHAIN_PROBE, write_atomic

ROCM, TORCH = "7.2", "2.13.0"
"""The versions in the image of `container_images.make_rocm_pytorch`."""

BASE = {
    "tag": "rocm/pytorch:stand-in",
    "distribution": "ubuntu22.04",  # as the tag of AMD's stand-in says; nothing else reads it
    "glibc": "2.36",
    "python": "3.11",
    "python-path": "/opt/venv/bin/python",
    "rocm-path": "/opt/rocm",
    "torch": TORCH,
    "source": "made by the tests",
}

CELL = Cell.from_axes("2.8.3", "3.11", TORCH, ROCM, Backend.TRITON)
"""A cell of the real matrix that needs no compiler."""

AMDS_CELL = Cell("2.8.3", "3.11", TORCH, ROCM, Backend.CK, amd_torch=True)
"""A cell for AMD's own torch, which only an image has."""

# upstream's setup.py without compiling: a wheel of metadata
_WRITES_A_WHEEL = """\
# reads none of BUILD_TARGET, FLASH_ATTENTION_FORCE_BUILD and FLASH_ATTENTION_TRITON_AMD_ENABLE
import sys, zipfile
folder, name = sys.argv[sys.argv.index("--dist-dir") + 1], "flash_attn-{version}"
members = {{
    "flash_attn/__init__.py": "",
    name + ".dist-info/METADATA": "Metadata-Version: 2.1\\nName: flash_attn\\nVersion: {version}\\n",
    name + ".dist-info/WHEEL": "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
}}
members[name + ".dist-info/RECORD"] = "".join(member + ",,\\n" for member in [*members, name + ".dist-info/RECORD"])
with zipfile.ZipFile(folder + "/" + name + "-py3-none-any.whl", "w") as wheel:
    for member, text in members.items():
        wheel.writestr(member, text)
"""

_COUNTS = "import time\nfor second in range({}):\n    print('second', second, flush=True)\n    time.sleep(1)\n"

RELEASES: Mapping[str, str] = {
    "9.9.1": _COUNTS.format(3),
    "9.9.2": "raise SystemExit('fatal: this release cannot be built')\n",
    **dict.fromkeys(("9.9.3", "9.9.4"), _COUNTS.format(300)),
}
"""Releases of flash-attn for tests, with the code that setup.py runs before it writes a wheel."""


def setup_py(does: str, version: str = "9.9.0") -> str:
    """Return a setup.py that runs the code `does`, then writes a wheel."""
    return does + _WRITES_A_WHEEL.format(version=version)


def make_command(folder: Path, does: str, deadline: float, **environ: str) -> BuildCommand:
    """Return the build command of `setup_py`, like the factory's, below `folder`. The wheel is in ``scratch/raw``."""
    source, scratch = folder / "scratch/source", folder / "scratch"
    source.mkdir(parents=True)
    (source / "setup.py").write_text(setup_py(does), encoding="utf-8")
    given = {
        "PATH": "/usr/bin:/bin",
        "HOME": "/tmp",  # noqa: S108 - in the container
        "SOURCE_DIR": str(source),
        "WORK_DIR": "/tmp/flash-attn",  # noqa: S108 - in the container
        "RAW_DIR": str(scratch / "raw"),
        "BUILD_PYTHON": "/usr/bin/python3",
        "PYTHONPATH": str(ROOT / "src"),
    }
    return BuildCommand(
        name="a cell",
        argv=(str(BUILD_SCRIPT),),
        environ={**given, **environ},
        log=folder / "cell.log",
        reads=(BUILD_SCRIPT, TOOLCHAIN_PROBE, ROOT / "src", source),
        writes=(scratch,),
        deadline=deadline,
    )


def cell_of(version: str) -> Cell:
    """Return the cell of a release in `RELEASES`."""
    return Cell.from_axes(version, "3.11", TORCH, ROCM, Backend.TRITON)


def sdist(version: str) -> bytes:
    """Return the sdist of a release in `RELEASES`, reproducibly."""
    data, packed = setup_py(RELEASES[version], version).encode(), io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        member = tarfile.TarInfo(f"flash_attn-{version}/setup.py")
        member.size, member.mtime = len(data), 1_700_000_000
        tar.addfile(member, io.BytesIO(data))
    return packed.getvalue()


def write_matrix(path: Path, tag: str = BASE["tag"], source: Source | None = None) -> Path:
    """Write the matrix of the checkout with `BASE` as the only image of its ROCm, `FEW_ARCHS`, and `RELEASES`.

    CK is for one arch, whose wheel is small with the compiler of that image. `source` replaces that of 2.8.3.
    """
    text: dict[str, Any] = yaml.safe_load(MATRIX.read_text(encoding="utf-8"))
    text["rocm"][ROCM].pop("slim", None)
    text["rocm"][ROCM]["images"] = [{**BASE, "tag": tag}]
    like = text["flash-attn"]["2.8.3"]
    like["triton"]["archs"] = list(FEW_ARCHS)
    like["ck"] = {**like["ck"], "archs": ["gfx942"], "wheel-size": "1 MB to 100 MB"}
    if source:
        like["sdist"] = {**like["sdist"], "sha256": source.identity.removeprefix("sha256:")}
        del like["kernel-sources"], like["ck"]["trim"]
    own = {name: value for name, value in like.items() if name != "kernel-sources"}  # theirs are other sources
    for version in RELEASES:
        origin = {"file": f"flash_attn-{version}.tar.gz", "sha256": hashlib.sha256(sdist(version)).hexdigest()}
        text["flash-attn"][version] = {**own, "sdist": origin, "source": "made by the tests"}
    path.write_text(yaml.dump(text, sort_keys=False, Dumper=_Plain), encoding="utf-8")
    return path


class _Plain(yaml.SafeDumper):
    """A dumper without anchors and aliases."""

    def ignore_aliases(self, data: object) -> bool:
        """Return True: never write an alias."""
        return True


def put_sources(cache: Path) -> None:
    """Put the sdists of `RELEASES` into a cache, as if downloaded."""
    for version in RELEASES:
        data = sdist(version)
        write_atomic(cache / "sources" / hashlib.sha256(data).hexdigest()[:16] / f"flash_attn-{version}.tar.gz", data)


def containers_of(engine: Engine, run: Path) -> list[str]:
    """Return the containers of a run, running or not."""
    return [found for found, folder in labelled(engine) if folder == run]


def labelled(engine: Engine) -> list[tuple[str, Path]]:
    """Return all containers of runs, with the folders of the runs. One request, as containers can vanish."""
    found = engine.client.api.containers(all=True, filters={"label": RUN_LABEL})
    return [(container["Id"], Path(container["Labels"][RUN_LABEL])) for container in found]


def wait_until(happened: Callable[[], object], seconds: float = 300) -> None:
    """Wait until `happened` is true. Raises `AssertionError` after `seconds`."""
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)
