"""Run a kernel: the registers that waves begin with, work-groups and waves in a given order, barriers.

Source of descriptors and initial registers: LLVM's "User Guide for AMDGPU Backend", section "Initial Kernel Execution
State". Waves of a group run one after another from barrier to barrier.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, TypeAlias

import numpy as np

from wheelfactory.emulator.accesses import SCRATCH_ADDRESS
from wheelfactory.emulator.assembly import Program, read_program
from wheelfactory.emulator.code_object import Kernel
from wheelfactory.emulator.decode import END, decode
from wheelfactory.emulator.families import family_of
from wheelfactory.emulator.findings import Finding, NotRunError
from wheelfactory.emulator.memory import Array, Memory, Region, SharedRegion
from wheelfactory.emulator.wave import TTMP, Run, Wave

Size: TypeAlias = tuple[int, int, int]

_MAX_INSTRUCTIONS = 1 << 26
"""Instructions of one wave; a wave that needs more is taken for one that never ends."""

# fields of kernel_code_properties, each with its size in registers, in the order of the registers
_PRIVATE_BUFFER, _DISPATCH, _QUEUE, _ARGUMENTS, _DISPATCH_ID, _FLAT_SCRATCH, _PRIVATE_SIZE = (
    1 << bit for bit in range(7)
)


@dataclass(frozen=True)
class Buffer:
    """Memory that a kernel may use: `data` are its bytes, at the `address` that kernel arguments hold."""

    name: str
    data: Array
    address: int
    written: bool = True
    """False if reads are findings until a store wrote the bytes."""

    @classmethod
    def of(cls, name: str, array: Array, *, written: bool = True) -> Buffer:
        """Return a buffer with the memory of an array. Raises `ValueError` if it is not contiguous."""
        if not array.flags.c_contiguous:
            raise ValueError(f"{name} is not contiguous")
        return cls(name, array.reshape(-1).view(np.uint8), array.ctypes.data, written)


@dataclass(frozen=True)
class Execution:
    """What a launch did; its results are in the buffers."""

    instructions: int
    """Instructions of all waves."""
    findings: tuple[Finding, ...]


def arrange(items: Sequence[Any], order: str) -> list[Any]:
    """Return items in an order: ``forward``, ``reversed``, or the seed of a shuffle."""
    if order.isdigit():
        return random.Random(order).sample(items, len(items))  # noqa: S311  # an order, no secret
    return list(reversed(items)) if order == "reversed" else list(items)


@dataclass
class LoadedKernel:
    """A kernel with its decoded instructions, to launch often. Creating one raises `NotRunError`."""

    kernel: Kernel
    assembly: str
    constants: Sequence[Buffer] = ()
    """Memory of its code object, at the addresses that a disassembly has."""
    program: Program = field(init=False)
    code: list[Run] = field(init=False)

    def __post_init__(self) -> None:
        rounding, denormals = self.kernel.rsrc1 >> 12 & 15, self.kernel.rsrc1 >> 16 & 15
        if rounding or denormals >> 2 != 3:
            raise NotRunError("a kernel with another rounding mode, or without denormals of 16 and 64 bits")
        family = family_of(self.kernel.arch)
        if self.kernel.wave_size != family.wave_size:
            raise NotRunError(f"waves of {self.kernel.wave_size} lanes on {self.kernel.arch}")
        self.program = read_program(self.assembly, self.kernel.name)
        self.code = decode(self.program, family, denormals=denormals & 3)

    def launch(
        self,
        grid: Size,
        block: Size,
        arguments: Sequence[bytes],
        buffers: Sequence[Buffer],
        *,
        dynamic_local: int = 0,
        order: str = "forward",
    ) -> Execution:
        """Run `grid` work-groups of `block` threads; `arguments` are the explicit ones, packed as the kernel has them.

        `dynamic_local` are bytes of local memory beyond the kernel's own; `order` is that of work-groups, and of the
        waves of each (see `arrange`). Raises `NotRunError`.
        """
        with np.errstate(all="ignore"):
            return _Launch(self, grid, block, arguments, [*buffers, *self.constants], dynamic_local).run(order)


class _Launch:
    def __init__(
        self,
        loaded: LoadedKernel,
        grid: Size,
        block: Size,
        arguments: Sequence[bytes],
        buffers: Sequence[Buffer],
        dynamic_local: int,
    ) -> None:
        self._loaded, self._kernel, self._grid, self._block = loaded, loaded.kernel, grid, block
        self._threads = block[0] * block[1] * block[2]
        self._findings: dict[tuple[int, str, str], Finding] = {}
        self._current: Wave | None = None
        self._instructions = 0
        packed = np.frombuffer(bytearray(self._pack_arguments(arguments)), np.uint8)
        segment = Buffer.of("kernel arguments", packed)
        self._argument_address = segment.address
        size = loaded.kernel.local + dynamic_local
        packet = Buffer.of("dispatch packet", np.frombuffer(bytearray(self._pack_dispatch(size)), np.uint8))
        self._packet_address = packet.address
        used = [*buffers, segment, packet]
        regions = [Region(each.name, each.address, each.data, track=not each.written) for each in used]
        self._global = Memory(regions, self._report, what="the buffers")
        self._local_region = SharedRegion(np.empty(size, np.uint8))
        self._local = Memory([self._local_region], self._report, what="local memory")
        count = -(-self._threads // loaded.kernel.wave_size)
        if self._threads > loaded.kernel.max_threads or not self._threads:
            raise NotRunError(f"{self._threads} threads in a work-group")
        self._waves = [self._make_wave() for _ in range(count)]

    def _report(self, problem: str, near: str, address: int) -> None:
        wave = self._current
        assert wave is not None
        instruction = self._loaded.program.instructions[wave.pc - 1]
        finding = Finding(self._kernel.name, instruction.text, instruction.line, problem, near, address)
        self._findings.setdefault((instruction.line, problem, near), finding)

    def _pack_arguments(self, arguments: Sequence[bytes]) -> bytes:
        packed, left = bytearray(max(self._kernel.argument_bytes, 4)), list(arguments)
        hidden = self._hidden_arguments()
        for argument in self._kernel.arguments:
            if argument.kind.startswith("hidden_") and argument.kind not in hidden:
                raise NotRunError(f"argument {argument.kind}")
            value = hidden.get(argument.kind) or left.pop(0)
            if len(value) != argument.size:
                raise NotRunError(f"an argument of {len(value)} bytes for {argument}")
            packed[argument.offset : argument.offset + argument.size] = value
        if left:
            raise NotRunError(f"{len(left)} arguments too many")
        return bytes(packed)

    def _pack_dispatch(self, local: int) -> bytes:
        """Pack the kernel dispatch packet of the "HSA Platform System Architecture Specification", without signals."""
        threads = (count * size for count, size in zip(self._grid, self._block, strict=True))
        sizes = (*self._block, 0, *threads, self._kernel.scratch, local)
        return struct.pack("<HHHHHHIIIIIQQQQ", 0, 3, *sizes, 0, self._argument_address, 0, 0)

    def _hidden_arguments(self) -> dict[str, bytes]:
        """Return what kernels may read of a launch; grids are whole work-groups that start at 0."""
        found = {"hidden_grid_dims": struct.pack("<H", 3)}  # as HIP launches
        for axis, count, size in zip("xyz", self._grid, self._block, strict=True):
            found |= {f"hidden_block_count_{axis}": struct.pack("<I", count), f"hidden_remainder_{axis}": bytes(2)}
            found |= {f"hidden_group_size_{axis}": struct.pack("<H", size), f"hidden_global_offset_{axis}": bytes(8)}
        return found

    def _make_wave(self) -> Wave:
        wave, kernel = Wave(self._kernel.wave_size), self._kernel
        wave.scratch_size = kernel.scratch + 3 & ~3
        region = Region("scratch", 0, np.empty(wave.scratch_size * wave.size, np.uint8), track=True)
        wave.global_memory, wave.local = self._global, self._local
        wave.scratch = Memory([region], self._report, what="scratch")
        return wave

    def run(self, order: str) -> Execution:
        """Run all work-groups."""
        groups = [(x, y, z) for z, y, x in product(*map(range, reversed(self._grid)))]
        for group in arrange(groups, order):
            self._local_region.reset()
            for number, wave in enumerate(self._waves):
                self._begin(wave, number, group)
            running = arrange(list(enumerate(self._waves)), order)
            while running:
                self._local_region.pass_barrier()
                for self._local_region.wave, wave in running:
                    self._continue(wave)
                running = [(number, wave) for number, wave in running if wave.pc != END]
        return Execution(self._instructions, tuple(self._findings.values()))

    def _continue(self, wave: Wave) -> None:
        """Run a wave up to its next barrier, or to its end."""
        self._current, code, count = wave, self._loaded.code, 0
        wave.stopped = False
        try:
            while not wave.stopped:
                run = code[wave.pc]
                wave.pc += 1
                count += 1
                run(wave)
                if count > _MAX_INSTRUCTIONS:
                    raise NotRunError(f"more than {_MAX_INSTRUCTIONS} instructions of a wave")
        except (IndexError, ValueError) as error:
            raise NotRunError(f"{self._describe(wave)}: {error}") from None
        self._instructions += count

    def _describe(self, wave: Wave) -> str:
        rows = self._loaded.program.instructions[wave.pc - 1 : wave.pc]
        return rows[0].text if rows else "the end of the kernel"

    def _begin(self, wave: Wave, number: int, group: Size) -> None:
        """Give a wave the registers that it begins with."""
        kernel, program = self._kernel, self._loaded.program
        wave.registers[:] = 0xFFFFFFFF
        wave.s[:] = [0xFFFFFFFF] * len(wave.s)
        registers = list(self._user_registers())
        wave.pc, wave.denormals = 0, kernel.rsrc1 >> 16 & 3
        if kernel.preload & 0x7F:
            if program.preloaded is None:
                raise NotRunError("preloaded arguments without a second entry")
            wave.pc = program.preloaded
        expected = kernel.rsrc2 >> 1 & 31
        if len(registers) > expected:
            raise NotRunError(f"{len(registers)} user registers of {expected}")
        registers += [0] * (expected - len(registers))
        registers += self._system_registers(wave, number, group)
        wave.s[: len(registers)] = registers
        self._set_lanes(wave, number)

    def _user_registers(self) -> Iterator[int]:
        properties, kernel = self._kernel.properties, self._kernel
        if properties & _PRIVATE_BUFFER:
            yield from (SCRATCH_ADDRESS & 0xFFFFFFFF, SCRATCH_ADDRESS >> 32, 0xFFFFFFFF, 1 << 23)
        if properties & _DISPATCH:
            yield from (self._packet_address & 0xFFFFFFFF, self._packet_address >> 32)
        if properties & (_QUEUE | _DISPATCH_ID):
            raise NotRunError("a kernel that reads its queue")
        if properties & _ARGUMENTS:
            yield from (self._argument_address & 0xFFFFFFFF, self._argument_address >> 32)
        if properties & _FLAT_SCRATCH:
            yield from (0, 0)
        if properties & _PRIVATE_SIZE:
            yield kernel.scratch
        length, first = kernel.preload & 0x7F, kernel.preload >> 7
        if length:
            address = np.array([self._argument_address + 4 * first])
            yield from self._global.load(address, 4, length)[:, 0].tolist()

    def _system_registers(self, wave: Wave, number: int, group: Size) -> Iterator[int]:
        rsrc2 = self._kernel.rsrc2
        if family_of(self._kernel.arch).group_ids_in_ttmp:
            wave.s[TTMP + 7] = group[1] | group[2] << 16
            wave.s[TTMP + 8], wave.s[TTMP + 9] = number << 25, group[0]
        else:
            yield from (place for bit, place in zip((7, 8, 9), group, strict=True) if rsrc2 >> bit & 1)
        if rsrc2 >> 10 & 1:
            raise NotRunError("a kernel that reads the work-group info")
        if rsrc2 & 1 and self._kernel.properties & (_PRIVATE_BUFFER | _FLAT_SCRATCH):
            yield 0  # where the scratch of the wave begins

    def _set_lanes(self, wave: Wave, number: int) -> None:
        threads = np.arange(wave.size) + number * wave.size
        x, y = threads % self._block[0], threads // self._block[0] % self._block[1]
        z = threads // (self._block[0] * self._block[1])
        if self._kernel.arch == "gfx908" or self._kernel.arch.startswith("gfx10"):
            wave.u[0][:], wave.u[1][:], wave.u[2][:] = x, y, z
        else:
            wave.u[0][:] = x | y << 10 | z << 20
        wave.set_exec((1 << min(wave.size, self._threads - number * wave.size)) - 1)
