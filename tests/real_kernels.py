"""Real kernels of flash-attn, built by upstream's setup.py and a real HIP compiler, few enough for a test.

Real: upstream's sources, setup.py with its flags for HIP 6.4, generate.py, torch.utils.cpp_extension and hipify of two
releases of torch, ninja, hipcc, the link, and the factory. Omitted: all kernels that the ``--filter`` of generate.py
excludes; its API sources then name only the remaining ones; and the headers of CK that these do not need. Replaced:
the seven sources of ``csrc/flash_attn_ck``, which need the headers of torch for ROCm, by `BINDING`, and torch by
`stub_torch`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from hip_rocm import make_hip_rocm
from hip_toolchain import HipToolchain
from stage_arguments import local_executor
from stub_torch import find_other_python, make_stub_torch
from wheelfactory.build.environments import make_build_environment
from wheelfactory.build.setup_py import RawWheel, SetupRun, log_path, make_recipe, run_setup
from wheelfactory.build.sources import Source, fetch_source, unpack_source
from wheelfactory.core.cell import Cell
from wheelfactory.core.errors import BuildError
from wheelfactory.core.files import MATRIX as MATRIX_FILE
from wheelfactory.core.files import file_sha256
from wheelfactory.core.host import Host
from wheelfactory.core.process import capture
from wheelfactory.core.progress import ignore_progress
from wheelfactory.core.query import NOTICE_PREFIX
from wheelfactory.kernels.compiler.request import CompileResult
from wheelfactory.kernels.compiler.store import ObjectRecord, Store
from wheelfactory.kernels.setup_env import FULL_SCOPE, CompileScope, read_outcome, setup_env, store_folder
from wheelfactory.matrix.facts import Context, FlashAttn, Matrix
from wheelfactory.matrix.load import load_matrix

FILTER = "*_d[136]*_fp16_*_psskddv"
"""One kernel each for head dims 32, 64 and 128, of the kind that compiles fastest with its API: it appends to a cache
of keys. With two kernels, a second cell takes just over a tenth of the CPU time of the first."""

KERNELS = (
    "fmha_fwd_appendkv_api",
    *(f"fmha_fwd_appendkv_d{dim}_fp16_b64x64x{dim}x{dim}_vr_psskddv" for dim in (128, 32, 64)),
)

TORCHES = ("2.9.1", "2.11.0")
"""They pass different macros and include paths to hipcc."""

ARCHS = ("gfx90a", "gfx942")

SYSTEM_GLIBC = "2.43"
"""The glibc of the compiler's Debian, which links the extension and serves as the image of the cells."""

FMHA = "csrc/composable_kernel/example/ck_tile/01_fmha"
_CK = "csrc/composable_kernel/include/ck_tile"
_HEADER, _ALL_HEADERS = f"{_CK}/ops/fmha.hpp", f"{_CK}/ops/fmha_all.hpp"
_NEEDED = "bias|masking|rotary|position|page_block|variants|fmha_pipeline_(enum|problem)|tile_fmha|ops/common"
"""A pattern of the headers that all kernels and APIs need."""
_KEPT = ("flash_attn", _CK, FMHA)
_BINDINGS = "csrc/flash_attn_ck"

_GENERATE = """\
import runpy, sys
from pathlib import Path

direction = sys.argv[sys.argv.index("-d") + 1]
if kernels := {filters!r}.get(direction):
    sys.argv += ["--filter", kernels]
    runpy.run_path(str(Path(__file__).with_name("generate_all.py")), run_name="__main__")
"""

_SETUP = """\
import setuptools

real = setuptools.setup


def setup(**settings):
    for extension in settings["ext_modules"]:  # a plain build has none
        extension.sources = [source for source in extension.sources if "build/" in source or "flash_api" in source]
    real(**settings)


setuptools.setup = setup
"""
"""Goes before upstream's own."""

BINDING = """\
#include <Python.h>
#include <cuda_runtime.h>
#include <cstdint>
#include <exception>
#include <string>
#include "ck_tile/host/stream_config.hpp"

namespace ck_tile {{ using index_t = int32_t; }}
{declared}

static PyObject *append(PyObject *, PyObject *head_dim)
{{
    int dim = PyLong_AsLong(head_dim);
    fmha_fwd_appendkv_args args{{}};
    args.batch = args.seqlen_q = args.seqlen_knew = args.nhead_q = args.nhead_k = 1;
    args.hdim_q = args.hdim_v = dim;
    try {{
        return PyFloat_FromDouble(fmha_fwd_appendkv({{dim, dim, "fp16", true, rope_enum::none}}, args, {{}}));
    }} catch (const std::exception &error) {{
        return PyErr_Format(PyExc_RuntimeError, "%s", error.what());
    }}
}}

static PyMethodDef methods[] = {{{{"append", append, METH_O, nullptr}}, {{}}}};
static PyModuleDef definition = {{PyModuleDef_HEAD_INIT, "flash_attn_2_cuda", nullptr, -1, methods}};

PyMODINIT_FUNC PyInit_flash_attn_2_cuda() {{ return PyModule_Create(&definition); }}
"""
"""``append(DIM)`` calls CK's API for that head dim. Its types are cut out of CK's header, because compiling the whole
header takes half as long as a kernel."""

_DECLARED = (
    ("rotary.hpp", r"^enum class rope_enum\n\{.*?^\};"),
    ("fmha_fwd.hpp", r"^struct fmha_fwd_appendkv_args\n\{.*?^\};"),
    ("fmha_fwd.hpp", r"^struct fmha_fwd_appendkv_traits\n\{.*?^\};"),
    ("fmha_fwd.hpp", r"^float fmha_fwd_appendkv\(.*?\);"),
)


@dataclass(frozen=True)
class Wanted:
    """Which sources to build, and which of their kernels."""

    version: str
    """As matrix.yaml names it."""
    release: FlashAttn
    filters: Mapping[str, str]
    """By direction (``-d`` of generate.py), the pattern of its kernels; other directions have none."""
    archs: Sequence[str] = ARCHS
    torches: Sequence[str] = TORCHES


def append_kernels(pattern: str = FILTER) -> Wanted:
    """Those kernels of 2.8.3 that append to a cache of keys and match a pattern."""
    return Wanted("2.8.3", load_matrix(MATRIX_FILE).flash_attn["2.8.3"], {"fwd_appendkv": pattern})


@dataclass(frozen=True)
class Built:
    """The results of a run of setup.py."""

    raw: RawWheel | None
    """None if the run ended before the link, as for a shard."""
    report: CompileResult
    objects: Mapping[str, ObjectRecord]
    """The records in the stores afterwards, by source and targets: ``NAME for gfx942``."""
    parts: Mapping[str, object]
    """The parts of the key of the host code."""
    commands: Mapping[str, str]
    """Source and targets -> command line of hipcc. Of an ordinary compile, the targets are ``gfx90a-gfx942-host``."""
    notes: tuple[str, ...]
    """The notices printed during the run."""

    @property
    def compiled(self) -> list[str]:
        """The sources and targets that hipcc has compiled, sorted, without the ordinary compiles of samples."""
        return sorted(name for name in self.commands if "-host" not in name)

    @property
    def samples(self) -> list[str]:
        """The ordinary compiles of samples, sorted."""
        return sorted(set(self.commands) - set(self.compiled))


@dataclass(frozen=True)
class Bench:
    """A compiler, sources, and a Python for each of `TORCHES`, in a folder visible to the compiler."""

    folder: Path
    rocm: Path
    source: Source
    matrix: Matrix
    cells: Mapping[Cell, Path]
    """The Python of each cell."""

    def given(self, cell: Cell, cache: str, **more: str) -> Context:
        """Return a host with the torch of a cell; `cache` is the name of a cache, `more` are variables."""
        environ = {
            **os.environ,
            "PATH": f"{self.cells[cell].parent}:{os.environ['PATH']}",
            "ROCM_PATH": str(self.rocm),
            "ROCM_HOME": str(self.rocm),
            "CXX": f"{self.rocm}/bin/hipcc",  # also links: the objects need the libstdc++ of the compiler's system
            **more,
        }
        host = Host(cores=2, memory_gib=16, rocm="6.4.43484", rocm_path=self.rocm)
        return Context(self.matrix, host, environ, self.folder / cache)

    def build(self, cell: Cell, cache: str = "cache", wanted: CompileScope = FULL_SCOPE, **environ: str) -> Built:
        """Run setup.py in a new folder, as the factory does."""
        given = self.given(cell, cache, **environ)
        kernels, log = store_folder(given.cache), log_path(given.cache, cell.id)
        scratch = self.folder / f"build{len(list(self.folder.glob('build*')))}"
        scratch.mkdir()
        recipe = make_recipe(self.matrix, cell, given.host, given.environ, local_build="PYTORCH_ROCM_ARCH" in environ)
        place = local_executor(given).prepare_host(cell, ignore_progress)
        setup = SetupRun(recipe, self.source, place, scratch, log)
        handed = setup_env(setup, ("small",), wanted, given)
        self._log.write_text("")
        raw = None
        with suppress(BuildError):  # a shard is not linked; the report has any other error
            raw = run_setup(setup, handed)
        output = log.read_text()
        report = read_outcome(setup, kernels)
        assert report, output[-3000:]
        stores = [Store.open(kernels, key) for key in report.keys]
        records = {
            f"{name} for {'-'.join(entry.targets)}": entry
            for store in stores
            for name, entry in store.read_records().items()
        }
        notes = tuple(
            line.removeprefix(NOTICE_PREFIX) for line in output.splitlines() if line.startswith(NOTICE_PREFIX)
        )
        return Built(raw, report, records, stores[-1].key.parts, self._commands(), notes)

    def run_inside(self, folder: Path, *command: str | Path) -> subprocess.CompletedProcess[str]:
        """Run a program in the root file system of the compiler, with the same visible folders."""
        return subprocess.run([self.rocm / "bin/inside", *command], cwd=folder, capture_output=True, text=True)

    @property
    def _log(self) -> Path:
        return self.rocm / "hipcc.log"

    def _commands(self) -> dict[str, str]:
        lines = [line for line in self._log.read_text().splitlines() if " -c " in line and " -###" not in line]
        outputs = {line: Path(line.partition(" -o ")[2].split()[0]) for line in lines}
        return {
            path.stem + (f" for {path.parent.name}" if ".scratch-" in str(path) else ""): line
            for line, path in outputs.items()
        }


def make_bench(toolchain: HipToolchain, cache: Path, folder: Path, wanted: Wanted) -> Bench:
    """Create a bench in `folder` with some kernels. Downloads are kept in `cache`."""
    pythons = [Path(sys.executable), find_other_python() or Path(sys.executable)]
    rocm = make_hip_rocm(toolchain, folder / "rocm", folder, *{_visible(python) for python in pythons})
    _change(rocm / "bin/hipcc")
    # libamdhip64 and the extension need this library; the gate symbols looks for it
    library = "usr/lib/x86_64-linux-gnu/libstdc++.so.6"
    (rocm / "lib/libstdc++.so.6").symlink_to(toolchain.root / library)
    cells = {}
    for torch, python in zip(wanted.torches, pythons, strict=True):
        version = capture([python, "-c", "import sys; print('cp%d%d' % sys.version_info[:2])"]).strip()
        made = make_stub_torch(cache, folder / f"python-{torch}", torch, python, rocm)
        cells[Cell.parse(f"fa{wanted.version}-rocm6.4-torch{torch}-{version}-ck")] = made
    source = keep_source(pack_source(cache, folder, wanted), folder / "cache", cache)
    return Bench(folder, rocm, source, make_matrix(source, cells, wanted.archs), cells)


def pack_source(cache: Path, folder: Path, wanted: Wanted) -> Source:
    """Pack an sdist with some kernels in `folder`."""
    upstream = fetch_source(wanted.version, wanted.release, cache / "sources", os.environ)
    tree = unpack_source(upstream, folder / "upstream")
    return replace(upstream, archive=_pack(tree, folder / "sources" / upstream.archive.name, wanted))


def keep_source(source: Source, own: Path, shared: Path) -> Source:
    """Put an sdist into the downloads of the cache `own`, and link the environments of the cache `shared` there."""
    digest = file_sha256(source.archive)
    place = own / "sources" / digest[:16]
    place.mkdir(parents=True)
    shutil.copy(source.archive, place)
    make_build_environment(shared)
    for path in shared.glob("env-*"):
        (own / path.name).symlink_to(path)
    return replace(source, identity=f"sha256:{digest}")


def _visible(python: Path) -> Path:
    """Return the prefix of a Python; only its headers if the prefix is /usr."""
    prefix, headers = capture(
        [python, "-c", "import sys, sysconfig; print(sys.base_prefix, sysconfig.get_path('include'), sep='\\n')"]
    ).splitlines()
    return Path(headers if prefix == "/usr" else prefix)


def _change(hipcc: Path) -> None:
    """Make hipcc log its command lines; add ``inside``, which runs any program in the compiler's root file system."""
    text, once = hipcc.read_text(), "    itself="
    inside = hipcc.with_name("inside")
    inside.write_text(text.replace(' "${program}" "$@"', ' "$@"'))
    inside.chmod(0o755)
    assert once in text
    hipcc.write_text(text.replace(once, f'    echo "$*" >> "${{0%/bin/*}}/hipcc.log"\n{once}', 1))


def _pack(tree: Path, archive: Path, wanted: Wanted) -> Path:
    """Pack the required sources with our binding."""
    root = archive.parent / archive.name.removesuffix(".tar.gz")
    for name in _KEPT:
        shutil.copytree(tree / name, root / name)
    for path in filter(Path.is_file, tree.iterdir()):
        shutil.copy(path, root)
    (root / "setup.py").write_text(_SETUP + (root / "setup.py").read_text())
    (root / FMHA / "generate.py").rename(root / FMHA / "generate_all.py")
    (root / FMHA / "generate.py").write_text(_GENERATE.format(filters=dict(wanted.filters)))
    shutil.copy(root / _HEADER, root / _ALL_HEADERS)
    include_only(root, "|".join(direction.removeprefix("fwd_") for direction in wanted.filters))
    (root / _BINDINGS).mkdir()
    for path in (tree / _BINDINGS).glob("*.cpp"):  # setup.py lists them all
        (root / _BINDINGS / path.name).write_text("")
    declared = [_cut(tree / FMHA / name, pattern) for name, pattern in _DECLARED]
    (root / _BINDINGS / "flash_api.cpp").write_text(BINDING.format(declared="\n".join(declared)))
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        tar.add(root, root.name)
    return archive


def include_only(tree: Path, pattern: str) -> None:
    """Let CK's ``ops/fmha.hpp`` include what `_NEEDED` and this pattern match; for some kernels, the other headers take
    half of the compiler's time."""
    needed = re.compile(f"{_NEEDED}|{pattern}")
    lines = (tree / _ALL_HEADERS).read_text().splitlines(keepends=True)
    (tree / _HEADER).write_text("".join(line for line in lines if "#include" not in line or needed.search(line)))


def _cut(header: Path, pattern: str) -> str:
    found = re.search(pattern, header.read_text(), re.MULTILINE | re.DOTALL)
    assert found, (header, pattern)
    return found[0]


def make_matrix(source: Source, cells: Collection[Cell], archs: Sequence[str], **image: str) -> Matrix:
    """Return a matrix with these cells, built in an image of the compiler's system.

    `image` overrides fields of the image, by their keys in matrix.yaml.
    """
    note, pythons = "written for the tests", sorted({cell.python for cell in cells})
    (version,), torches = {cell.flash_attn for cell in cells}, list(dict.fromkeys(cell.torch for cell in cells))
    ck = {"wheel-size": "10 kB to 10 MB", "archs": archs, "source": note}
    sdist = {"file": source.archive.name, "sha256": source.identity.removeprefix("sha256:")}
    torch = {
        "python": pythons,
        "triton": "3.5.1",
        "triton-package": "triton-rocm",
        "cxx11-abi": True,
        "platform": "manylinux_2_28_x86_64",
        "source": note,
    }
    usual = {
        "tag": "debian:forky",
        "distribution": "debian",
        "glibc": SYSTEM_GLIBC,
        "python": pythons[0],
        "python-path": "/opt/venv/bin/python",
        "rocm-path": "/opt/rocm",
        "torch": torches[0],
    }
    rocm = {
        "torch": torches,
        "index": "https://example.org",
        "archs": archs,
        "images": [{**usual, **image, "source": note}],
    }
    return Matrix.model_validate(
        {
            "backend": ["ck"],
            "python": pythons,
            "flash-attn": {version: {"sdist": sdist, "python": ">=3.9", "ck": ck, "source": note}},
            "torch": dict.fromkeys(torches, torch),
            "rocm": {"6.4": {**rocm, "source": note}},
        }
    )
