"""Whole kernels: initial registers, arguments, groups, barriers, orders, findings; and their assembly text."""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import pytest

from wheelfactory.emulator.assembly import parse_instruction, read_program
from wheelfactory.emulator.code_object import Argument, Kernel
from wheelfactory.emulator.decode import CODE_ADDRESS
from wheelfactory.emulator.dispatch import Buffer, Execution, LoadedKernel, arrange
from wheelfactory.emulator.findings import NotRunError
from wheelfactory.emulator.memory import Array

NORMAL = 0xF0 << 12
"""Rounding to nearest, no flushing."""

KERNEL = Kernel(
    name="kernel", arch="gfx942", wave_size=64, max_threads=256,
    arguments=(Argument(0, 8, "global_buffer"), Argument(8, 4, "by_value")), argument_bytes=16, local=0, scratch=0,
    vector_registers=8, scalar_registers=16, vector_spills=0, scalar_spills=0,
    rsrc1=NORMAL, rsrc2=0x384, properties=8, preload=0,
)  # fmt: skip
"""Two user registers, then the three ids of the group."""


def text_of(body: str) -> str:
    """Return assembly text as LLVM writes it."""
    rows = [row.strip() for row in body.strip().splitlines()]
    lines = [row if row.endswith(":") else f"\t{row}" for row in rows]
    head = ["\t.text", "other:", "\ts_trap 2", ".Lfunc_end0:", "\t.p2align\t8", "kernel:                 ; @kernel"]
    return "\n".join([*head, *lines, "\ts_endpgm", ".Lfunc_end1:", "\tnot an instruction"])


def launch(
    body: str, output: Array, *, kernel: Kernel = KERNEL, grid: tuple[int, int, int] = (1, 1, 1), threads: int = 64,
    value: int = 0, local: int = 0, order: str = "forward", written: bool = True,
) -> Execution:  # fmt: skip
    buffer = Buffer.of("output", output, written=written)
    arguments = [struct.pack("<Q", buffer.address), struct.pack("<I", value)]
    loaded = LoadedKernel(kernel, text_of(body))
    return loaded.launch(grid, (threads, 1, 1), arguments, [buffer], dynamic_local=local, order=order)


IDS = """
    s_load_dwordx2 s[6:7], s[0:1], 0x0
    s_load_dword s8, s[0:1], 0x8
    s_waitcnt lgkmcnt(0)
    s_mul_i32 s9, s2, 512
    v_lshl_add_u32 v1, v0, 2, s9
    v_add_u32_e32 v2, s8, v0
    global_store_dword v1, v2, s[6:7]
"""


def test_groups_lanes_and_arguments() -> None:
    output = np.zeros(3 * 128, np.uint32)
    done = launch(IDS, output, grid=(3, 1, 1), threads=100, value=1000)
    expected = [[1000 + lane if lane < 100 else 0 for lane in range(128)] for _ in range(3)]
    assert output.reshape(3, 128).tolist() == expected
    assert done == Execution(3 * 2 * 8, ())


def test_the_dimensions_of_groups_and_threads() -> None:
    output = np.zeros(64, np.uint32)
    store = """
        s_load_dwordx2 s[6:7], s[0:1], 0x0
        s_lshl_b32 s8, s3, 4
        s_lshl_b32 s9, s4, 8
        s_add_i32 s8, s8, s2
        s_add_i32 s8, s8, s9
        v_mov_b32_e32 v2, s8
        v_mov_b32_e32 v1, 0
        global_store_dword v1, v2, s[6:7]
    """
    launch(store, output, grid=(2, 3, 4), threads=1)
    assert output[0] == 1 + (2 << 4) + (3 << 8)  # the last group
    newer = replace(KERNEL, arch="gfx1201", wave_size=32, rsrc2=4)
    ttmp = store.replace("s3, 4", "ttmp7, 4").replace("s4, 8", "ttmp8, 3").replace("s8, s2", "s8, ttmp9")
    launch(ttmp, output, kernel=newer, grid=(2, 3, 1), threads=33)
    assert output[0] == 1 + (2 << 4) + (1 << 28)  # the last wave of the last group


def test_threads_in_three_dimensions() -> None:
    output = np.zeros(24, np.uint32)
    body = """
        s_load_dwordx2 s[6:7], s[0:1], 0x0
        v_mbcnt_lo_u32_b32 v1, -1, 0
        v_lshlrev_b32_e32 v1, 2, v1
        global_store_dword v1, v0, s[6:7]
    """
    buffer = Buffer.of("output", output)
    loaded = LoadedKernel(KERNEL, text_of(body))
    loaded.launch((1, 1, 1), (2, 3, 4), [struct.pack("<Q", buffer.address), bytes(4)], [buffer])
    assert output.tolist() == [x | y << 10 | z << 20 for z in range(4) for y in range(3) for x in range(2)]


@pytest.mark.parametrize("header", [".p2align\t8", ".fill 63, 4, 0xbf800000"])
def test_preloaded_arguments_start_at_the_second_entry(header: str) -> None:
    output = np.zeros(64, np.uint32)
    body = f"""
        s_trap 2
        {header}
        v_lshlrev_b32_e32 v1, 2, v0
        v_mov_b32_e32 v2, s4
        global_store_dword v1, v2, s[2:3]
    """
    launch(body, output, kernel=replace(KERNEL, rsrc2=0x38A, preload=3), value=77)
    assert set(output.tolist()) == {77}
    with pytest.raises(NotRunError, match="second entry"):
        launch(body.replace(header, "s_nop 0"), output, kernel=replace(KERNEL, rsrc2=0x38A, preload=3))


EXCHANGE = """
    s_load_dwordx2 s[6:7], s[0:1], 0x0
    v_lshlrev_b32_e32 v1, 2, v0
    ds_write_b32 v1, v0
    s_barrier
    v_xor_b32_e32 v2, 0x1fc, v1
    ds_read_b32 v3, v2
    global_store_dword v1, v3, s[6:7]
"""


@pytest.mark.parametrize("order", ["forward", "reversed", "7"])
def test_waves_wait_for_each_other_at_a_barrier(order: str) -> None:
    output = np.zeros(128, np.uint32)
    done = launch(EXCHANGE, output, threads=128, local=512, order=order)
    assert output.tolist() == list(range(127, -1, -1))
    assert done.findings == ()


@pytest.mark.parametrize("order", ["forward", "reversed", "7"])
@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("v_lshrrev_b32_e32 v2, 6, v0; ds_write_b32 v3, v2", "over another wave's write"),
        ("v_mov_b32_e32 v2, 7; ds_write_b32 v3, v2", ""),
        ("ds_read_b32 v2, v3; v_cmp_lt_u32_e32 vcc, 127, v0; s_mov_b64 exec, vcc; ds_write_b32 v3, v0", "wave's "),
        ("ds_write_b8 v1, v0; s_barrier; ds_read_b32 v2, v3; ds_write_b16 v3, v3 offset:2", "another wave's read"),
    ],
)  # fmt: skip
def test_races_of_three_waves(body: str, problem: str, order: str) -> None:
    """v1 is the thread's own word, v3 the first word for all; a race is a finding whichever wave is last."""
    start = "v_lshlrev_b32_e32 v1, 2, v0\nv_mov_b32_e32 v3, 0\nv_mov_b32_e32 v4, 0\n"
    fill = "ds_write_b32 v1, v4\ns_barrier\n"
    done = launch(start + fill + body.replace("; ", "\n"), np.zeros(1, np.uint32), threads=192, local=2048,
                  order=order)  # fmt: skip
    assert any(problem in finding.problem for finding in done.findings) == bool(problem), done.findings


@pytest.mark.parametrize("order", ["forward", "reversed"])
def test_a_missing_barrier_is_found_in_every_order(order: str) -> None:
    wrong = EXCHANGE.replace("s_barrier", "s_nop 0")
    done = launch(wrong, np.zeros(128, np.uint32), threads=128, local=512, order=order)
    assert [(finding.problem, finding.line) for finding in done.findings] == [
        ("read of local memory that nobody wrote", 12),
        ("write of local memory after another wave's read, without a barrier", 9),
        ("read of local memory after another wave's write, without a barrier", 12),
    ]
    first = 508 if order == "forward" else 252
    assert str(done.findings[0]) == (
        f"kernel: read of local memory that nobody wrote: ds_read_b32 v3, v2 at byte {first} of local memory"
    )


def test_waves_may_share_a_word_of_local_memory() -> None:
    body = """
        s_load_dwordx2 s[6:7], s[0:1], 0x0
        v_lshlrev_b32_e32 v1, 1, v0
        ds_write_b16 v1, v0
        ds_read_u16 v3, v1
        global_store_short v1, v3, s[6:7]
    """
    output = np.zeros(128, np.uint16)
    shifted = body.replace("1, v0\n", "1, v0\n v_add_u32_e32 v1, 2, v1\n", 1).replace(
        "s[6:7]\n    ", "s[6:7] offset:-2\n"
    )
    done = launch(shifted, output, threads=128, local=258)  # the waves meet in the middle of a word
    assert (done.findings, output.tolist()) == ((), list(range(128)))


def test_an_order_is_a_permutation() -> None:
    items = list(range(20))
    assert arrange(items, "forward") == items
    assert arrange(items, "reversed") == items[::-1]
    assert arrange(items, "3") == arrange(items, "3") != arrange(items, "4")
    assert sorted(arrange(items, "3")) == items


def test_findings_name_the_buffer_and_the_instruction() -> None:
    output = np.zeros(64, np.uint32)
    done = launch(IDS, output, grid=(2, 1, 1))  # the second group is beyond the end
    (finding,) = done.findings
    assert (finding.problem, finding.near, finding.address) == ("store outside the buffers", "output", 512)
    assert finding.instruction == "global_store_dword v1, v2, s[6:7]"


def test_a_buffer_is_contiguous() -> None:
    with pytest.raises(ValueError, match="output is not contiguous"):
        Buffer.of("output", np.zeros((4, 4), np.uint32).T)


def test_uninitialised_buffers() -> None:
    body = """
        s_load_dwordx2 s[6:7], s[0:1], 0x0
        v_mov_b32_e32 v1, 0
        global_load_dword v2, v1, s[6:7]
        global_store_dword v1, v0, s[6:7]
        global_load_dword v2, v1, s[6:7]
    """
    assert launch(body, np.zeros(4, np.uint32)).findings == ()
    (finding,) = launch(body, np.zeros(4, np.uint32), written=False).findings
    assert (finding.problem, finding.line) == ("read of output that nobody wrote", 9)


def test_branches_and_long_jumps() -> None:
    body = """
        s_load_dwordx2 s[6:7], s[0:1], 0x0
        s_mov_b32 s10, 5
        v_mov_b32_e32 v2, 0
        .LBB0_1:
        v_add_u32_e32 v2, 1, v2
        s_add_i32 s10, s10, -1
        s_cmp_lg_u32 s10, 0
        s_cbranch_scc1 .LBB0_1
        s_getpc_b64 s[12:13]
        .Lpost:
        s_add_u32 s12, s12, (.Lfar-.Lpost)&4294967295
        s_addc_u32 s13, s13, (.Lfar-.Lpost)>>32
        s_setpc_b64 s[12:13]
        v_mov_b32_e32 v2, 0
        .Lfar:
        v_cmp_lt_u32_e32 vcc, 63, v0
        s_cbranch_vccnz .Lend
        v_lshlrev_b32_e32 v1, 2, v0
        global_store_dword v1, v2, s[6:7]
        .Lend:
    """
    output = np.zeros(64, np.uint32)
    launch(body, output)
    assert set(output.tolist()) == {5}


def test_hidden_arguments_are_those_of_the_launch() -> None:
    """Grids are whole work-groups that start at 0, in three dimensions, as HIP launches them."""
    hidden = [("block_count_x", 4), ("group_size_x", 2), ("remainder_x", 2), ("grid_dims", 2), ("global_offset_x", 8)]
    offsets = (16, 20, 22, 24, 32)
    more = (Argument(at, size, f"hidden_{name}") for at, (name, size) in zip(offsets, hidden, strict=True))
    kernel = replace(KERNEL, arguments=(*KERNEL.arguments, *more), argument_bytes=40)
    body = """
        s_load_dwordx2 s[6:7], s[0:1], 0x0
        s_load_dwordx4 s[8:11], s[0:1], 0x10
        s_load_dwordx2 s[12:13], s[0:1], 0x20
        v_mov_b32_e32 v1, 0
        v_mov_b32_e32 v2, s8
        v_mov_b32_e32 v3, s9
        v_mov_b32_e32 v4, s10
        v_mov_b32_e32 v5, s12
        global_store_dwordx4 v1, v[2:5], s[6:7]
    """
    output = np.ones(4, np.uint32)
    launch(body, output, kernel=kernel, grid=(5, 1, 1), threads=64)
    assert output.tolist() == [5, 64, 3, 0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rsrc1": NORMAL | 1 << 12}, "rounding mode"),
        ({"rsrc1": 0x30 << 12}, "denormals"),
        ({"arch": "gfx803"}, "code for gfx803"),
        ({"properties": 8 | 4}, "its queue"),
        ({"rsrc2": 0x784}, "work-group info"),
        ({"max_threads": 32}, "64 threads"),
        ({"wave_size": 32}, "waves of 32 lanes on gfx942"),
        ({"arguments": (*KERNEL.arguments, Argument(12, 8, "hidden_queue_ptr"))}, "hidden_queue_ptr"),
        ({"arguments": KERNEL.arguments[:1]}, "too many"),
        ({"name": "missing"}, "no instructions"),
    ],
)
def test_kernels_that_are_not_modelled(changes: dict[str, object], message: str) -> None:
    with pytest.raises(NotRunError, match=message):
        launch(IDS, np.zeros(64, np.uint32), kernel=replace(KERNEL, **changes))  # type: ignore[arg-type]


def test_only_instructions_that_run_count() -> None:
    body = "s_branch .Lover\n v_unheard_of v0\n .Lover:"
    assert launch(body, np.zeros(1, np.uint32)).instructions == 2
    with pytest.raises(NotRunError, match=r"v_unheard_of v0 \(line 7: not run: unknown instruction\)"):
        launch("v_unheard_of v0", np.zeros(1, np.uint32))
    with pytest.raises(NotRunError, match="the end of the kernel: list index"):
        launch("s_setpc_b64 s[0:1]", np.zeros(1, np.uint32))


def test_the_parts_of_an_instruction() -> None:
    found = parse_instruction("v_cvt_f32_f16_sdwa v1, -|v2| dst_sel:DWORD src0_sel:WORD_1")
    assert (found.name, found.operands) == ("v_cvt_f32_f16", ("v1", "-|v2|"))
    assert found.modifiers == {"dst_sel": "DWORD", "src0_sel": "WORD_1", "sdwa": ""}
    found = parse_instruction("v_pk_fma_f32 v[0:1], v[2:3], s[4:5], 1.0 op_sel_hi:[1,0,1] clamp")
    assert found.operands == ("v[0:1]", "v[2:3]", "s[4:5]", "1.0")
    assert found.modifiers == {"op_sel_hi": "[1,0,1]", "clamp": ""}
    found = parse_instruction("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 3")
    assert found.operands == ("hwreg(HW_REG_MODE, 4, 2)", "3")
    found = parse_instruction("v_dual_mul_f32 v0, v1, v2 :: v_dual_mov_b32 v3, 0")
    assert (found.name, found.second and found.second.name) == ("v_mul_f32", "v_mov_b32")
    program = read_program(text_of("s_nop 0 ; a comment\n.LBB1:"), "kernel")
    assert [each.text for each in program.instructions] == ["s_nop 0", "s_endpgm"]
    assert program.labels[".LBB1"] == 1


def test_a_disassembly_is_the_same_program_as_the_assembly_text() -> None:
    text = """
code.o:\tfile format elf64-amdgpu

0000000000002200 <other>:
\ts_endpgm                 // 000000002200: BF810000

0000000000002300 <kernel>:
\ts_cbranch_scc1 L0        // 000000002300: BF850000
\ts_load_dwordx2 s[6:7], s[0:1], 0x0 // 000000002304: C0060180 00000000

000000000000230c <L0>:
\ts_endpgm                 // 00000000230C: BF810000

0000000000002310 <next>:
\ts_trap 2                 // 000000002310: BF920002
"""
    found = read_program(text, "kernel")
    written = read_program(text_of("s_cbranch_scc1 L0\n s_load_dwordx2 s[6:7], s[0:1], 0x0\n L0:"), "kernel")
    assert [each.text for each in found.instructions] == [each.text for each in written.instructions]
    assert found.labels["L0"] == written.labels["L0"] == 2
    assert (found.addresses, found.preloaded) == ((0x2300, 0x2304, 0x230C), None)
    with pytest.raises(NotRunError, match="absent: no instructions"):
        read_program(text, "absent")


def test_code_of_a_disassembly_reads_the_constants_of_its_code_object() -> None:
    text = """file format elf64-amdgpu
0000000000000100 <kernel>:
\ts_load_dwordx2 s[6:7], s[0:1], 0x0 // 000000000100:
\ts_getpc_b64 s[8:9] // 000000000108:
\ts_sub_u32 s8, s8, 12 // 00000000010C:
\ts_load_dword s10, s[8:9], 0x0 // 000000000110:
\tv_mov_b32_e32 v1, s10 // 000000000118:
\tv_mov_b32_e32 v2, 0 // 00000000011C:
\tglobal_store_dword v2, v1, s[6:7] // 000000000120:
\ts_endpgm // 000000000128:
"""
    constants = Buffer("constants", np.array([7, 8, 9], np.uint32).view(np.uint8), CODE_ADDRESS + 0xFC)
    output = np.zeros(1, np.uint32)
    buffer = Buffer.of("output", output)
    arguments = [struct.pack("<Q", buffer.address), bytes(4)]
    done = LoadedKernel(KERNEL, text, [constants]).launch((1, 1, 1), (64, 1, 1), arguments, [buffer])
    assert (output.tolist(), done.findings) == ([8], ())


def test_a_kernel_reads_its_dispatch_packet() -> None:
    output = np.zeros(1, np.uint32)
    body = """
        s_load_dwordx2 s[6:7], s[2:3], 0x0
        s_load_dword s8, s[0:1], 0x4
        v_mov_b32_e32 v1, s8
        v_mov_b32_e32 v2, 0
        global_store_dword v2, v1, s[6:7]
    """
    kernel = replace(KERNEL, properties=2 | 8, rsrc2=0x388)
    launch(body, output, kernel=kernel, threads=64)
    assert output.tolist() == [64 | 1 << 16]  # two sizes of a work-group, of 16 bits
