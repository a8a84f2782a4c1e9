"""Kernels that Debian's HIP compiler makes for each family run on the emulator: another compiler than Triton's."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import numpy as np
import pytest

from hip_toolchain import HipToolchain
from wheelfactory.emulator.code_object import read_kernels
from wheelfactory.emulator.dispatch import Buffer, Execution, LoadedKernel
from wheelfactory.emulator.memory import Array

pytestmark = pytest.mark.slow

ARCHS = ("gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201")

SOURCE = Path(__file__).with_name("kernels.hip")


def compile_kernels(hip: HipToolchain, folder: Path, arch: str, *flags: str) -> dict[str, LoadedKernel]:
    shutil.copy(SOURCE, folder)
    device = ("--cuda-device-only", "-nogpuinc", "-nogpulib", "-O3", "-mllvm", "-amdgpu-early-inline-all=false")
    command = ("hipcc", f"--offload-arch={arch}", *device, *flags, SOURCE.name)
    hip.run(folder, *command, "-S", "-o", "kernels.s")
    hip.run(folder, *command, "--no-gpu-bundle-output", "-o", "kernels.co")
    text = (folder / "kernels.s").read_text()
    kernels = read_kernels((folder / "kernels.co").read_bytes())
    return {name: LoadedKernel(kernel, text) for name, kernel in kernels.items()}


@pytest.fixture(scope="module", params=ARCHS)
def kernels(
    request: pytest.FixtureRequest, hip: HipToolchain, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, LoadedKernel]:
    return compile_kernels(hip, tmp_path_factory.mktemp("kernels"), request.param, "-DWITH_BARRIER")


def launch(loaded: LoadedKernel, groups: int, threads: int, arrays: list[Array], *integers: int) -> Execution:
    buffers = [Buffer.of(f"argument {number}", array) for number, array in enumerate(arrays)]
    arguments = [struct.pack("<Q", buffer.address) for buffer in buffers]
    arguments += [struct.pack("<i", integer) for integer in integers]
    return loaded.launch((groups, 1, 1), (threads, 1, 1), arguments, buffers, order="reversed")


def draw(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def test_vector_addition(kernels: dict[str, LoadedKernel]) -> None:
    (x, y), output = draw(2, 1000), np.zeros(1000, np.float32)
    assert launch(kernels["add"], 4, 256, [x, y, output], 1000).findings == ()
    assert np.array_equal(output, x + y)

    found = launch(kernels["add"], 4, 256, [x, y, output], 1001)
    assert {(each.problem, each.address) for each in found.findings} == {
        ("load outside the buffers", 4000),
        ("store outside the buffers", 4000),
    }


def test_a_reduction_with_local_memory_and_barriers(kernels: dict[str, LoadedKernel]) -> None:
    x, output = draw(1000), np.zeros(3, np.float32)
    assert launch(kernels["sum"], 3, 128, [x, output], 1000).findings == ()
    threads = x[:768].reshape(2, 3, 128).sum(0, np.float64)
    threads.reshape(-1)[:232] += x[768:]
    assert np.allclose(output, threads.sum(1), rtol=1e-6)


def test_a_reduction_without_barriers_is_found(hip: HipToolchain, tmp_path: Path) -> None:
    without = compile_kernels(hip, tmp_path, "gfx1100")
    found = launch(without["sum"], 3, 128, [draw(1000), np.zeros(3, np.float32)], 1000)
    assert "read of local memory after another wave's write, without a barrier" in {
        each.problem for each in found.findings
    }


def test_a_matrix_product(kernels: dict[str, LoadedKernel]) -> None:
    (a, b), output = draw(2, 16, 16).astype(np.float16), np.zeros((16, 16), np.float32)
    loaded = kernels["multiply"]
    assert launch(loaded, 1, loaded.kernel.wave_size, [a, b, output]).findings == ()
    assert np.allclose(output, a.astype(np.float64) @ b.astype(np.float64), atol=2e-6)
    has_matrices = any(each.name.startswith(("v_mfma", "v_wmma")) for each in loaded.program.instructions)
    assert has_matrices == (loaded.kernel.arch != "gfx1030")


def test_spilled_registers(kernels: dict[str, LoadedKernel]) -> None:
    x, output, loaded = draw(64, 64), np.zeros((64, 64), np.float32), kernels["spill"]
    assert loaded.kernel.vector_spills > 0 < loaded.kernel.scratch
    assert launch(loaded, 1, 64, [x, output]).findings == ()
    numbers = list(x)
    for _ in range(3):
        for each in range(64):
            numbers[each] = numbers[each] * np.float32(0.5) + numbers[(each * 7 + 3) % 64]
    assert np.allclose(output, numbers, rtol=1e-5, atol=1e-6)


def test_atomic_additions_and_divisions(kernels: dict[str, LoadedKernel]) -> None:
    x = np.random.default_rng(1).integers(0, 2**32, 512, np.uint32)
    counts, remainders = np.zeros(97, np.uint32), np.zeros(512, np.int64)
    assert launch(kernels["count"], 2, 256, [x, counts, remainders], 97).findings == ()
    assert np.array_equal(counts, np.bincount(x % 97, minlength=97))
    assert np.array_equal(remainders, np.fmod(x.astype(np.int64) * -1000003, 97 * 1000003))
