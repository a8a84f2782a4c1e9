"""Real CK kernels, compiled by a real HIP compiler in a container, linked there, and verified there.

The image is the one of `make_hip_image` with a torch on paper where AMD's images have theirs; see `real_kernels` for
what else stands in.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import typing_extensions

import container_engine
import container_images
from container_images import make_hip_image
from hip_toolchain import HipToolchain
from real_kernels import SYSTEM_GLIBC, TORCHES, append_kernels, keep_source, make_bench, make_matrix
from wheelfactory.build.container_executor import ContainerExecutor, open_containers
from wheelfactory.build.engine import Engine
from wheelfactory.core.cell import Cell
from wheelfactory.core.host import Host
from wheelfactory.core.progress import ignore_progress
from wheelfactory.kernels.compiler.store import SetKey, Store
from wheelfactory.kernels.compiler.targets import HOST
from wheelfactory.kernels.setup_env import store_folder
from wheelfactory.matrix.facts import Context
from wheelfactory.pipeline.build import build_cell
from wheelfactory.verify.gates import verify
from wheelfactory.verify.result import Status
from wheelfactory.wheel.inspection import inspect

pytestmark = pytest.mark.slow

KERNEL = "fmha_fwd_appendkv_d32_fp16_b64x64x32x32_vr_psskddv"
"""One kernel: a compile for the arch and one for the host."""

ARCH = "gfx90a"

API = "fmha_fwd_appendkv_api"
"""The source that chooses it, which is compiled for the host alone."""

PYTHON = "3.14"
"""Of the Debian that the compiler is of."""

CELL = Cell.parse(f"fa2.8.3-rocm6.4-torch{TORCHES[0]}-cp314-ck")

_HIPCC = """\
#!/bin/sh
unset ROCM_PATH ROCM_HOME
exec /usr/bin/hipcc "$@"
"""
"""Debian's knows where Debian has what AMD has in one folder, unless a variable names another."""

_BASE = f"""\
FROM {{hip}}
RUN rm /opt/rocm/bin/hipcc \\
 && ln -sf /bin/true /usr/bin/apt-get \\
 && ln -s clang++-21 /usr/bin/x86_64-linux-gnu-g++
RUN python3 -m venv --without-pip /opt/venv
COPY hipcc /opt/rocm/bin/hipcc
COPY packages /opt/venv/lib/python{PYTHON}/site-packages
"""
"""Nothing more is installed with apt-get, which takes half a minute and works in `cell_image`: clang links here."""


@dataclass(frozen=True)
class Shop:
    """An engine, a machine, and the sources in its cache."""

    given: Context
    executor: ContainerExecutor

    def compiled(self) -> set[str]:
        """The kept kernels, by name and target."""
        kernels = store_folder(self.given.cache)
        stores = [Store(kernels, SetKey.from_bytes(path.read_bytes())) for path in kernels.glob("*/set.json")]
        entries = [entry for store in stores for entry in store.read_records().values()]
        return {f"{entry.source} for {' '.join(entry.targets)}" for entry in entries}


@pytest.fixture(scope="module")
def shop(hip: HipToolchain, engine: Engine, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    container_engine.skip_unless(container_images.find_missing_requirement())
    folder = tmp_path_factory.mktemp("contained")
    bench = make_bench(hip, cache, folder / "bench", append_kernels("*_d32_fp16_*_psskddv"))
    torch = next(bench.cells[next(iter(bench.cells))].parents[1].glob("lib/python*/site-packages/torch"))
    tag = _make_base(engine, make_hip_image(cache, engine.client), torch)
    source = keep_source(bench.source, folder / "cache", cache)
    given = Context(
        make_matrix(source, [CELL], (ARCH,), tag=tag, python=PYTHON), Host(cores=2, memory_gib=6), {}, folder / "cache"
    )
    with open_containers(engine, context=given) as executor:
        yield Shop(given, executor)


def _make_base(engine: Engine, hip: str, torch: Path) -> str:
    """The image with a torch, as a build context would have it."""
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as tar:
        for name, text in (("Dockerfile", _BASE.format(hip=hip)), ("hipcc", _HIPCC)):
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(text), 0o755
            tar.addfile(member, io.BytesIO(text.encode()))
        tar.add(torch, "packages/torch")
        tar.add(typing_extensions.__file__, "packages/typing_extensions.py")  # which torch.utils.cpp_extension imports
    context.seek(0)
    tag = "rocm/pytorch:debian"
    engine.client.images.build(
        fileobj=context, custom_context=True, tag=tag, network_mode=engine.build_network, forcerm=True
    )
    return tag


@pytest.fixture(scope="module")
def wheel(shop: Shop, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_cell(shop.executor, CELL, tmp_path_factory.mktemp("dist"), ignore_progress, context=shop.given)


def test_the_wheel_has_device_code_for_the_arch_and_is_of_the_image(wheel: Path) -> None:
    facts = inspect(wheel, {})
    (extension,) = facts.elf_files
    assert {target: code.objects for target, code in extension.device_code.items()} == {ARCH: 1}
    assert facts.distribution
    assert facts.distribution.record
    toolchain = facts.distribution.record.toolchain
    assert (toolchain.python, toolchain.glibc) == (PYTHON, SYSTEM_GLIBC)
    assert str(toolchain.compiler).startswith("HIP version: 6.4")


@pytest.mark.usefixtures("wheel")
def test_the_compiled_kernels_are_kept_on_this_machine(shop: Shop) -> None:
    assert shop.compiled() == {f"{KERNEL} for {ARCH}", f"{KERNEL} for {HOST}", f"{API} for {HOST}"}


def test_it_is_verified_in_the_image_where_the_torch_of_the_cell_is(shop: Shop, wheel: Path) -> None:
    """The import needs torch itself, which a torch on paper is not: the gate says so, and that it was asked there."""
    results = {result.gate: result for result in verify(wheel, CELL, (), shop.executor, context=shop.given)}
    imported = results.pop("import")
    assert {name: result.status for name, result in results.items() if result.required} == dict.fromkeys(
        [name for name, result in results.items() if result.required], Status.PASSED
    )
    assert results["symbols"].detail.startswith(f"torch {TORCHES[0]}+rocm6.4")
    assert results["symbols"].figures["undefined"] > 0
    assert imported.status is Status.FAILED
    assert "torch" in str(imported.findings[0])


def test_without_the_image_those_gates_do_not_run_and_the_wheel_is_refused(shop: Shop, wheel: Path) -> None:
    results = {result.gate: result for result in verify(wheel, CELL, context=shop.given)}
    assert {results[name].status for name in ("symbols", "import")} == {Status.NOT_RUN}
    assert "--executor docker" in results["symbols"].detail
