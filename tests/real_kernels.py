"""Real kernels of flash-attn, through upstream's setup.py and a real HIP compiler, and few enough for a test.

Real: the sources of 2.8.3, setup.py with its flags for HIP 6.4, generate.py, torch.utils.cpp_extension and hipify of
two releases of torch, ninja, hipcc, the link, and what the factory puts between these. Left out: all kernels but those
of generate.py's own ``--filter``, and their API, which then names no other. Stand-ins: one small source of ours for the
seven of ``csrc/flash_attn_ck``, which need the headers of torch for ROCm (`BINDING`), and a torch on paper.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import sys
import tarfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from hip_rocm import make_hip_rocm
from hip_toolchain import HipToolchain
from paper_torch import make_paper_torch, other_python
from wheelfactory.cell import Cell
from wheelfactory.checkout import MATRIX as MATRIX_FILE
from wheelfactory.compile.order import Report
from wheelfactory.compile.store import Finished, SetKey, Store
from wheelfactory.errors import BuildError
from wheelfactory.host import Host
from wheelfactory.kernels.handover import ALL, Wanted, hand_over, heard, kernels_folder
from wheelfactory.matrix import Matrix, load_matrix
from wheelfactory.process import capture
from wheelfactory.recipe import make_recipe
from wheelfactory.sources import Source, fetch_source, unpack
from wheelfactory.upstream import RawWheel, Setup, run_setup
from wheelfactory.workshop import Workshop

FILTER = "*_d64_*_psskddv"
"""The cheapest kernels that an API refers to: the one of fp16 and the one of bf16 that append to a cache of keys."""

KERNELS = (
    "fmha_fwd_appendkv_api",
    *(f"fmha_fwd_appendkv_d64_{kind}_b64x64x64x64_vr_psskddv" for kind in ("bf16", "fp16")),
)

TORCHES = ("2.9.1", "2.11.0")
"""They tell hipcc other macros, and look for headers in other folders."""

ARCHS = ("gfx90a", "gfx942")

FMHA = "csrc/composable_kernel/example/ck_tile/01_fmha"
_KEPT = ("flash_attn", "csrc/composable_kernel/include", "csrc/composable_kernel/library/include", FMHA)
_BINDINGS = "csrc/flash_attn_ck"

_GENERATE = f"""\
import runpy, sys
from pathlib import Path

if "fwd_appendkv" in sys.argv:
    sys.argv += ["--filter", {FILTER!r}]
    runpy.run_path(str(Path(__file__).with_name("generate_all.py")), run_name="__main__")
"""

_SETUP = """\
import runpy, setuptools

real = setuptools.setup


def setup(**settings):
    (extension,) = settings["ext_modules"]
    extension.sources = [source for source in extension.sources if "build/" in source or "flash_api" in source]
    real(**settings)


setuptools.setup = setup
runpy.run_path("upstream_setup.py", run_name="__main__")
"""

BINDING = """\
#include <Python.h>
#include <hip/hip_runtime.h>
#include <cstdint>
#include <exception>
#include <string>
#include "ck_tile/host/stream_config.hpp"

namespace ck_tile {{ using index_t = int32_t; }}
{declared}

static PyObject *append(PyObject *, PyObject *head_dim)
{{
    int dim = PyLong_AsLong(head_dim);
    try {{
        return PyFloat_FromDouble(fmha_fwd_appendkv({{dim, dim, "fp16", true, rope_enum::none}}, {{}}, {{}}));
    }} catch (const std::exception &error) {{
        return PyErr_Format(PyExc_RuntimeError, "%s", error.what());
    }}
}}

static PyMethodDef methods[] = {{{{"append", append, METH_O, nullptr}}, {{}}}};
static PyModuleDef definition = {{PyModuleDef_HEAD_INIT, "flash_attn_2_cuda", nullptr, -1, methods}};

PyMODINIT_FUNC PyInit_flash_attn_2_cuda() {{ return PyModule_Create(&definition); }}
"""
"""``append(DIM)`` calls CK's API for that head dim. Its types are cut out of CK's header, which takes a third as long to
compile as a kernel."""

_DECLARED = (
    ("rotary.hpp", r"^enum class rope_enum\n\{.*?^\};"),
    ("fmha_fwd.hpp", r"^struct fmha_fwd_appendkv_args\n\{.*?^\};"),
    ("fmha_fwd.hpp", r"^struct fmha_fwd_appendkv_traits\n\{.*?^\};"),
    ("fmha_fwd.hpp", r"^float fmha_fwd_appendkv\(.*?\);"),
)


@dataclass(frozen=True)
class Built:
    """What a run of setup.py made, and what it took."""

    raw: RawWheel | None
    """None if it ended before the link, as it does for a shard."""
    report: Report
    objects: Mapping[str, Finished]
    """What the store has afterwards."""
    parts: Mapping[str, object]
    """What the key is made of."""
    compiled: tuple[str, ...]
    """The sources that the compiler was given, sorted; not those that the compiler cache had."""
    cpu_s: float
    """Of all processes that it started."""


@dataclass(frozen=True)
class Bench:
    """A compiler, sources, and one Python for each of `TORCHES`, in a folder that the compiler sees."""

    folder: Path
    rocm: Path
    source: Source
    matrix: Matrix
    cells: Mapping[Cell, Path]
    """Each with its Python."""

    def workshop(self, cell: Cell, cache: str) -> Workshop:
        """One that finds the torch of a cell; `cache` names one of several."""
        environ = {
            **os.environ,
            "PATH": f"{self.cells[cell].parent}:{os.environ['PATH']}",
            "ROCM_PATH": str(self.rocm),
            "ROCM_HOME": str(self.rocm),
            **dict.fromkeys(("LDSHARED", "LDCXXSHARED"), f"{self.rocm}/bin/hipcc -shared"),
        }
        host = Host(cores=2, memory_gib=16, rocm="6.4.43484", rocm_path=self.rocm)
        return Workshop(self.matrix, host, environ, self.folder / cache)

    def build(self, cell: Cell, cache: str = "cache", wanted: Wanted = ALL) -> Built:
        """Run setup.py in a new folder, as the factory does."""
        workshop = self.workshop(cell, cache)
        scratch = self.folder / f"build{len(list(self.folder.glob('build*')))}"
        scratch.mkdir()
        recipe = make_recipe(self.matrix, cell, workshop.host, workshop.environ, by_hand=False)
        setup = Setup(recipe, self.source, self.cells[cell], scratch)
        handed = hand_over(workshop, setup, "small", wanted)
        self._log.write_text("")
        before, raw = _cpu_s(), None
        with suppress(BuildError):  # of a shard, which is not linked; what else there was is in the report
            raw = run_setup(workshop, setup, cell.id, handed, lambda done, total, told="": None)
        used = _cpu_s() - before
        report = heard(workshop, setup, cell.id)
        assert report, (workshop.cache / "logs" / f"{cell.id}.log").read_text()[-3000:]
        folder = kernels_folder(workshop) / report.key[:16]
        store = Store(folder.parent, SetKey.from_bytes((folder / "set.json").read_bytes()))
        return Built(raw, report, store.finished(), store.key.parts, self._compiled(), used)

    def forget_kernels(self, cache: str = "cache") -> None:
        """As if the store had been lost, and the compiler cache had not."""
        shutil.rmtree(self.folder / cache / "kernels")

    @property
    def _log(self) -> Path:
        return self.rocm / "hipcc.log"

    def _compiled(self) -> tuple[str, ...]:
        found = re.findall(r" -c (\S+) -o", self._log.read_text())
        return tuple(sorted(Path(source).stem for source in found))


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def make_bench(toolchain: HipToolchain, cache: Path, folder: Path) -> Bench:
    """What is downloaded for it is kept in `cache`."""
    pythons = [Path(sys.executable), other_python() or Path(sys.executable)]
    headers = [capture([python, "-c", "import sysconfig; print(sysconfig.get_path('include'))"]) for python in pythons]
    rocm = make_hip_rocm(toolchain, folder / "rocm", folder, *{Path(path.strip()) for path in headers})
    _log_compiles(rocm / "bin/hipcc")
    release = load_matrix(MATRIX_FILE).flash_attn["2.8.3"]
    upstream = fetch_source("2.8.3", release, cache / "sources", os.environ)
    cells = {}
    for torch, python in zip(TORCHES, pythons, strict=True):
        version = capture([python, "-c", "import sys; print('cp%d%d' % sys.version_info[:2])"]).strip()
        made = make_paper_torch(cache, folder / f"python-{torch}", torch, python, rocm)
        cells[Cell.parse(f"fa2.8.3-rocm6.4-torch{torch}-{version}-ck")] = made
    source = replace(upstream, archive=_pack(unpack(upstream, folder / "upstream"), folder / "sources"))
    return Bench(folder, rocm, source, _matrix(upstream, cells), cells)


def _log_compiles(hipcc: Path) -> None:
    """Let it note the command line of each compile, once, before it enters its own system."""
    before, after = "itself=", 'if [[ " $* " == *" -c "* && " $* " != *" -### "* ]]; then echo "$*" >> "${0%/bin/*}/hipcc.log"; fi'
    text = hipcc.read_text()
    assert before in text
    hipcc.write_text(text.replace(before, f"{after}\n    {before}", 1))


def _pack(tree: Path, folder: Path) -> Path:
    """An archive of what is needed of the sources, with our binding."""
    root = folder / "flash_attn-2.8.3"
    for name in _KEPT:
        shutil.copytree(tree / name, root / name)
    for path in filter(Path.is_file, tree.iterdir()):
        shutil.copy(path, root)
    (root / "setup.py").rename(root / "upstream_setup.py")
    (root / "setup.py").write_text(_SETUP)
    (root / FMHA / "generate.py").rename(root / FMHA / "generate_all.py")
    (root / FMHA / "generate.py").write_text(_GENERATE)
    (root / _BINDINGS).mkdir()
    for path in (tree / _BINDINGS).glob("*.cpp"):  # setup.py names them all
        (root / _BINDINGS / path.name).write_text("")
    declared = [_cut(tree / FMHA / name, pattern) for name, pattern in _DECLARED]
    (root / _BINDINGS / "flash_api.cpp").write_text(BINDING.format(declared="\n".join(declared)))
    archive = folder / "flash_attn-2.8.3.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        tar.add(root, root.name)
    return archive


def _cut(header: Path, pattern: str) -> str:
    found = re.search(pattern, header.read_text(), re.MULTILINE | re.DOTALL)
    assert found, (header, pattern)
    return found[0]


def _matrix(source: Source, cells: Mapping[Cell, Path]) -> Matrix:
    """One that has these cells, with the compiler's system as the image they are built in."""
    told, pythons = "written for the tests", sorted({cell.python for cell in cells})
    ck = {"wheel-size": "10 kB to 10 MB", "archs": ARCHS, "source": told}
    sdist = {"file": source.archive.name, "sha256": source.identity.removeprefix("sha256:")}
    torch = {
        "python": pythons,
        "triton": "3.5.1",
        "triton-package": "triton-rocm",
        "cxx11-abi": True,
        "platform": "manylinux_2_28_x86_64",
        "source": told,
    }
    image = {"tag": "debian:forky", "distribution": "debian", "glibc": "2.43", "python": pythons[0], "torch": TORCHES[0]}
    rocm = {"torch": TORCHES, "index": "https://example.org", "archs": ARCHS, "images": [{**image, "source": told}]}
    return Matrix.model_validate(
        {
            "backend": ["ck"],
            "python": pythons,
            "flash-attn": {"2.8.3": {"sdist": sdist, "python": ">=3.9", "ck": ck, "source": told}},
            "torch": dict.fromkeys(TORCHES, torch),
            "rocm": {"6.4": {**rocm, "source": told}},
        }
    )
