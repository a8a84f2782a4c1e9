"""Loads and stores: which bytes they touch, which lanes take part, and what is reported."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from emulated import execute
from wheelfactory.emulator.accesses import SCRATCH_ADDRESS
from wheelfactory.emulator.findings import NotRunError
from wheelfactory.emulator.memory import Array, Memory, Region
from wheelfactory.emulator.wave import Wave

BASE = 0x7F0000001000
PLACES = np.arange(64, dtype=np.uint32)


class Machine:
    """A wave with one buffer of 1,024 bytes, local memory and scratch, and what it reported."""

    def __init__(self, arch: str = "gfx942") -> None:
        self.arch = arch
        self.reports: list[tuple[str, str, int]] = []
        self.data = np.arange(1024, dtype=np.uint32).astype(np.uint8)
        self.shared: Array = np.zeros(1024, np.uint8)
        self.wave = Wave(64 if arch.startswith("gfx9") else 32)
        self.wave.registers[:] = 0
        self.wave.scratch_size = 32
        private = Region("scratch", 0, np.zeros(32 * self.wave.size, np.uint8), track=True)
        self.wave.global_memory = self._memory([Region("x", BASE, self.data)], "the buffers")
        self.wave.local = self._memory([Region("local memory", 0, self.shared, track=True)], "local memory")
        self.wave.scratch = self._memory([private], "scratch")
        self.wave.s[2:4] = [BASE & 0xFFFFFFFF, BASE >> 32]
        self.wave.s[4:8] = [BASE & 0xFFFFFFFF, BASE >> 32, 512, 0x27000]

    def _memory(self, regions: list[Region], what: str) -> Memory:
        return Memory(regions, lambda *row: self.reports.append(row), what=what)

    def run(self, text: str, **registers: object) -> Wave:
        size = self.wave.size
        cut = {name: value[:size] if isinstance(value, np.ndarray) else value for name, value in registers.items()}
        return execute(text, self.arch, self.wave, **cut)


def words(data: Array, at: int, count: int = 1) -> list[int]:
    return list(struct.unpack_from(f"<{count}I", data.tobytes(), at))


def test_scalar_loads() -> None:
    machine = Machine()
    w = machine.run("s_load_dwordx4 s[8:11], s[2:3], 0x10\ns_load_dword s12, s[2:3], s13 offset:0x4", s13=8)
    assert w.s[8:12] == words(machine.data, 16, 4)
    assert w.s[12] == words(machine.data, 12)[0]
    w = machine.run("s_buffer_load_dwordx2 s[8:9], s[4:7], 0x1fc")
    assert w.s[8:10] == [words(machine.data, 0x1FC)[0], 0]  # beyond the end of the buffer
    assert machine.reports == []
    machine.run("s_load_dword s8, s[2:3], 0x3fe")
    assert machine.reports == [("misaligned access", "x", 0x3FE)]
    machine.run("s_load_dwordx2 s[8:9], s[2:3], 0x3fc")
    assert machine.reports[1] == ("load outside the buffers", "x", 0x3FC)
    newer = Machine("gfx1201")
    newer.data[6:8] = 0x85, 0x91
    w = newer.run("s_load_u16 s8, s[2:3], 0x6\ns_load_i16 s9, s[2:3], 0x6\ns_load_i8 s10, s[2:3], 0x7")
    assert (w.s[8:11], newer.reports) == ([0x9185, 0xFFFF9185, 0xFFFFFF91], [])
    assert newer.run("s_load_b64 s[8:9], s[2:3], 0x8").s[8:10] == words(newer.data, 8, 2)


@pytest.mark.parametrize(
    ("text", "size", "signed"),
    [("ubyte", 1, False), ("sbyte", 1, True), ("ushort", 2, False), ("sshort", 2, True), ("dword", 4, False)],
)
def test_global_loads_of_each_size(text: str, size: int, signed: bool) -> None:
    machine = Machine()
    w = machine.run(f"global_load_{text} v0, v1, s[2:3] offset:4", v1=PLACES * 3)
    for lane in range(64):
        part = machine.data[4 + 3 * lane : 4 + 3 * lane + size].tobytes()
        assert int(w.u[0][lane]) == int.from_bytes(part, "little", signed=signed) & 0xFFFFFFFF
    newer = Machine("gfx1100")
    name = {"ubyte": "u8", "sbyte": "i8", "ushort": "u16", "sshort": "i16", "dword": "b32"}[text]
    assert newer.run(f"global_load_{name} v0, v1, s[2:3] offset:4", v1=PLACES * 3).u[0].tolist() == w.u[0][:32].tolist()


def test_halves_of_registers() -> None:
    machine = Machine()
    old = np.full(64, 0x11112222, np.uint32)
    assert machine.run("global_load_short_d16 v0, v1, s[2:3]", v0=old, v1=PLACES * 0 + 2).u[0][0] == 0x11110302
    assert machine.run("global_load_short_d16_hi v0, v1, s[2:3]", v0=old, v1=PLACES * 0 + 2).u[0][0] == 0x03022222
    machine.run("global_store_short_d16_hi v1, v0, s[2:3]", v0=old, v1=PLACES * 2)
    assert words(machine.data, 0, 32) == [0x11111111] * 32
    machine.run(
        "ds_write_b16_d16_hi v1, v0\nds_read_u16_d16_hi v2, v1\nds_read_u16 v3, v1", v0=old, v1=PLACES * 2, v2=old
    )
    assert (machine.wave.u[2][5], machine.wave.u[3][5]) == (0x11112222, 0x1111)
    assert machine.reports == []


def test_stores_of_active_lanes() -> None:
    machine, before = Machine(), Machine().data
    address = PLACES.astype(np.uint64) * 8 + np.uint64(BASE)
    machine.run(
        "global_store_dwordx2 v[0:1], v[2:3], off offset:-8",
        v0=(address & np.uint64(0xFFFFFFFF)).astype(np.uint32),
        v1=(address >> np.uint64(32)).astype(np.uint32),
        v2=PLACES + 1000,
        v3=PLACES + 2000,
        exec=0b1010,
    )
    assert words(machine.data, 0, 6) == [1001, 2001, *words(before, 8, 2), 1003, 2003]
    assert machine.data[24:].tolist() == before[24:].tolist()


def test_accesses_outside_the_buffers_are_reported_and_go_nowhere() -> None:
    machine, before = Machine(), Machine().data
    w = machine.run("global_load_dword v0, v1, s[2:3]", v1=PLACES * 17)
    assert machine.reports == [("load outside the buffers", "x", 17 * 61)]
    assert w.u[0][60] == words(machine.data, 1020)[0]
    assert w.u[0][61:].tolist() == [0xFFFFFFFF] * 3
    machine.run("global_store_dword v1, v0, s[2:3] offset:-4", v1=PLACES * 17)
    assert machine.reports[1:] == [("store outside the buffers", "x", -4)]
    assert machine.data[1020:].tolist() == before[1020:].tolist()


def test_buffers_ignore_lanes_beyond_their_size() -> None:
    machine = Machine()
    offsets = PLACES * 16
    offsets[1] = 0x80000000  # how Triton masks a lane
    w = machine.run("buffer_load_dwordx4 v[8:11], v1, s[4:7], 16 offen offset:16", v1=offsets)
    for lane in (0, 2, 29):
        assert [int(w.u[8 + n][lane]) for n in range(4)] == words(machine.data, 32 + 16 * lane, 4)
    assert w.u[8][1] == w.u[8][30] == w.u[11][63] == 0
    before = machine.data.copy()
    machine.run("buffer_store_short v2, v1, s[4:7], 0 offen", v1=PLACES * 16, v2=PLACES + 1)
    assert (machine.data[:512] != before[:512]).any()
    assert machine.data[512:].tolist() == before[512:].tolist()
    assert machine.reports == []
    with pytest.raises(NotRunError, match="across the end"):
        machine.run("buffer_load_dwordx4 v[8:11], v1, s[4:7], 0 offen", v1=PLACES * 0 + 504)
    with pytest.raises(NotRunError, match="structured"):
        machine.run("buffer_load_dword v8, v1, s[4:7], 0 offen", v1=PLACES, s5=BASE >> 32 | 4 << 16)


def test_a_buffer_is_loaded_into_local_memory() -> None:
    machine = Machine()
    machine.run("s_mov_b32 m0, 0x40\nbuffer_load_dword v1, s[4:7], 0 offen lds", v1=PLACES * 4)
    assert words(machine.shared, 64, 64) == words(machine.data, 0, 64)


def test_scratch_belongs_to_its_lane() -> None:
    machine = Machine()
    machine.run("scratch_store_dwordx2 off, v[2:3], s8 offset:16", v2=PLACES, v3=PLACES + 100, s8=4)
    w = machine.run("scratch_load_dword v0, v1, off", v1=PLACES * 0 + 24)
    assert w.u[0].tolist() == (PLACES + 100).tolist()
    assert machine.reports == []
    machine.run("scratch_load_dword v0, off, off offset:28")
    machine.run("scratch_load_dword v0, off, off offset:30")
    assert [problem for problem, _, _ in machine.reports] == [
        "read of scratch that nobody wrote",
        "load outside scratch",
    ]


def test_the_scratch_buffer_of_older_families() -> None:
    machine = Machine("gfx1030")
    machine.wave.s[4:8] = [SCRATCH_ADDRESS & 0xFFFFFFFF, SCRATCH_ADDRESS >> 32, 0xFFFFFFFF, 1 << 23]
    # the scalar offset counts the bytes of all 32 lanes
    machine.run("buffer_store_dword v2, off, s[4:7], s8 offset:4", v2=PLACES, s8=32 * 8)
    w = machine.run("buffer_load_dword v0, off, s[4:7], 0 offset:12")
    assert w.u[0].tolist() == PLACES[:32].tolist()
    assert machine.reports == []


def test_local_memory() -> None:
    machine = Machine()
    machine.run("ds_write_b64 v1, v[2:3] offset:8", v1=PLACES * 8, v2=PLACES, v3=PLACES + 100, exec=(1 << 60) - 1)
    w = machine.run("ds_read2_b32 v[4:5], v1 offset0:2 offset1:3", v1=PLACES * 8)
    assert (w.u[4][7], w.u[5][7]) == (7, 107)
    w = machine.run("ds_read_b128 v[4:7], v1 offset:8", v1=PLACES * 0)
    assert [int(w.u[4 + n][0]) for n in range(4)] == [0, 100, 1, 101]
    machine.run("ds_write2st64_b32 v1, v2, v3 offset1:1", v1=PLACES * 0 + 16, v2=PLACES * 0 + 5, v3=PLACES * 0 + 6)
    assert (words(machine.shared, 16), words(machine.shared, 16 + 256)) == ([5], [6])
    machine.run("ds_write_b8 v1, v2\nds_read_i8 v4, v1", v1=PLACES * 0 + 3, v2=PLACES * 0 + 0x80)
    assert machine.wave.u[4][0] == 0xFFFFFF80
    machine.run(
        "ds_write_b32 v1, v2 offset:608\nds_read_b32 v4, v3", v1=PLACES * 0 - 592, v2=PLACES, v3=PLACES * 0 + 16
    )
    assert machine.wave.u[4][0] == 59, "an address wraps at 32 bits; the last active lane wrote"
    assert machine.reports == []
    machine.wave.set_exec((1 << 64) - 1)
    machine.run("ds_read_b32 v4, v1", v1=PLACES * 0 + 1020)
    machine.run("ds_read_b32 v4, v1", v1=PLACES * 0 + 1022)
    machine.run("ds_write_b64 v1, v[2:3] offset:8", v1=PLACES * 0 + 1012)
    assert [problem for problem, _, _ in machine.reports] == [
        "read of local memory that nobody wrote",
        "load outside local memory",
        "store outside local memory",
    ]


def test_a_transposed_read_turns_rows_into_columns() -> None:
    machine = Machine("gfx950")
    halves = np.arange(256, dtype=np.uint16)
    machine.shared[:512] = halves.view(np.uint8)
    machine.wave.local = machine._memory([Region("local memory", 0, machine.shared)], "local memory")
    w = machine.run("ds_read_b64_tr_b16 v[4:5], v1", v1=PLACES * 8)
    matrix = halves.reshape(4, 16, 4)  # rows of 16 lanes, each with four elements
    for lane in range(64):
        found = [int(w.u[4 + n // 2][lane]) >> 16 * (n % 2) & 0xFFFF for n in range(4)]
        row, place = divmod(lane, 16)
        assert found == [int(matrix[row][4 * n + place // 4][place % 4]) for n in range(4)]


def test_atomic_updates_happen_lane_by_lane() -> None:
    machine = Machine()
    machine.data[:] = 0
    machine.run("global_atomic_add v1, v2, s[2:3] offset:8", v1=PLACES * 0, v2=PLACES)
    assert words(machine.data, 8) == [sum(range(64))]
    w = machine.run("global_atomic_add v0, v1, v2, s[2:3] sc0", v1=PLACES * 0, v2=PLACES * 0 + 1)
    assert sorted(w.u[0].tolist()) == list(range(64))
    machine.run("buffer_atomic_add_f32 v2, v1, s[4:7], 0 offen", v1=PLACES * 16, v2=np.full(64, 0.5, np.float32))
    assert words(machine.data, 16) == [0x3F000000]
    assert words(machine.data, 512) == [0]  # outside of the buffer
    newer = Machine("gfx1201")
    newer.data[:] = 0
    newer.run("global_atomic_max_i32 v1, v2, s[2:3]", v1=PLACES * 0, v2=PLACES * 0 + 9)
    w = newer.run(
        "global_atomic_cmpswap_b32 v0, v1, v[2:3], s[2:3] th:TH_ATOMIC_RETURN",
        v1=PLACES * 0,
        v2=PLACES + 50,
        v3=PLACES * 0 + 9,
    )
    assert (words(newer.data, 0), w.u[0][:2].tolist()) == ([50], [9, 50])
    assert machine.reports == newer.reports == []
    machine.run("global_atomic_add v1, v2, s[2:3]", v1=PLACES * 0 + 2, exec=1)
    assert machine.reports == [("misaligned access", "x", 2)]


@pytest.mark.parametrize(
    "text",
    [
        "global_load_unheard v0, v1, s[2:3]",
        "buffer_load_dword v0, v1, s[4:7], 0 idxen",
        "global_atomic_fsub v1, v2, s[2:3]",
        "ds_add_u32 v1, v2",
        "global_load_dword v0, v1, s[2:3] tfe:1",
        "ds_swizzle_b32 v0, v1 offset:swizzle(BROADCAST,8,3)",
    ],
)
def test_other_accesses_are_not_run(text: str) -> None:
    with pytest.raises(NotRunError):
        Machine().run(text)


def test_regions_next_to_each_other() -> None:
    reports: list[tuple[str, str, int]] = []
    a, b = np.full(8, 1, np.uint8), np.full(9, 2, np.uint8)
    memory = Memory(
        [Region("b", 116, b, track=True), Region("a", 101, a)], lambda *row: reports.append(row), what="the buffers"
    )
    loaded = memory.load(np.array([101, 105, 116, 107]), 4, 1)
    assert loaded[0].tolist() == [0x01010101, 0x01010101, 0x02020202, 0xFFFFFFFF]
    assert reports == [("read of b that nobody wrote", "b", 0), ("load outside the buffers", "a", 6)]
    memory.store(np.array([116, 119]), 2, np.array([[0x0304, 0x0506]], np.uint32))
    assert b[:6].tolist() == [4, 3, 2, 6, 5, 2]
    assert memory.load(np.array([116]), 2, 1).tolist() == [[0x0304]]
    assert memory.load(np.zeros(0, np.int64), 4, 2).shape == (2, 0)
    assert len(reports) == 2
