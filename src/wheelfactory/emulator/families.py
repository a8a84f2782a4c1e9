"""What differs between the families of AMD GPUs: names of instructions, layouts, and where group ids are."""

from __future__ import annotations

import re
from dataclasses import dataclass

from wheelfactory.emulator.findings import NotRunError


@dataclass(frozen=True)
class Family:
    """An instruction set; `arch` is one GPU of it, such as gfx942."""

    arch: str
    generation: int
    """9, 10, 11 or 12."""

    @property
    def wave_size(self) -> int:
        """The lanes of a wave."""
        return 64 if self.generation == 9 else 32

    @property
    def group_ids_in_ttmp(self) -> bool:
        """Whether the ids of a work-group are in trap registers, not in the scalar registers that follow the user's."""
        return self.generation == 12

    @property
    def matrix_flushes(self) -> bool:
        """Whether matrix instructions for 16-bit inputs flush denormals."""
        return self.arch == "gfx90a"


_KNOWN = re.compile(r"gfx(908|90a|942|950|103\d|110\d|115\d|120\d)")

_KEEPS_HIGH = re.compile(r"v_(fma|mad|div_fixup|fmac|fmaak|fmamk)_\w*16|v_fma_mixlo_f16|v_fma_mixhi_f16")


def family_of(arch: str) -> Family:
    """Return the family of an arch. Raises `NotRunError` for an arch that is not modelled."""
    if not _KNOWN.fullmatch(arch):
        raise NotRunError(f"code for {arch}")
    return Family(arch, 9 if arch.startswith("gfx9") else int(arch[3:5]))


def clears_high_half(family: Family, name: str) -> bool:
    """Return whether an instruction clears the high half of a register when it writes the low one."""
    return family.generation == 9 and not _KEEPS_HIGH.fullmatch(name)


# newer names, and the names of gfx9 that this package uses
_RENAMED = {
    "s_add_co_i32": "s_add_i32", "s_add_co_u32": "s_add_u32", "s_add_co_ci_u32": "s_addc_u32",
    "s_sub_co_i32": "s_sub_i32", "s_sub_co_u32": "s_sub_u32", "s_sub_co_ci_u32": "s_subb_u32",
    "s_addk_co_i32": "s_addk_i32", "s_add_nc_u64": "s_add_u64", "s_sub_nc_u64": "s_sub_u64",
    "s_ctz_i32_b32": "s_ff1_i32_b32", "s_ctz_i32_b64": "s_ff1_i32_b64", "s_clz_i32_u32": "s_flbit_i32_b32",
    "v_add_nc_u32": "v_add_u32", "v_sub_nc_u32": "v_sub_u32", "v_subrev_nc_u32": "v_subrev_u32",
    "v_add_nc_i32": "v_add_i32", "v_sub_nc_i32": "v_sub_i32", "v_add_nc_u16": "v_add_u16",
    "v_sub_nc_u16": "v_sub_u16", "v_add_co_ci_u32": "v_addc_co_u32", "v_sub_co_ci_u32": "v_subb_co_u32",
    "v_subrev_co_ci_u32": "v_subbrev_co_u32", "v_mad_co_u64_u32": "v_mad_u64_u32", "v_mad_co_i64_i32": "v_mad_i64_i32",
    "v_cvt_pk_rtz_f16_f32": "v_cvt_pkrtz_f16_f32", "v_clz_i32_u32": "v_ffbh_u32", "v_ctz_i32_b32": "v_ffbl_b32",
    "s_barrier_wait": "s_barrier", "v_pk_add_nc_u16": "v_pk_add_u16",
}  # fmt: skip
_NUMBERED = re.compile(r"([sv](?:_pk)?_(?:max|min|max3|min3|maxmin|minmax|med3))_num_(f\d+)")
_ATOMICS = {"add_u32": "add", "sub_u32": "sub", "max_i32": "smax", "min_i32": "smin", "max_u32": "umax"}
_ATOMICS |= {"min_u32": "umin", "and_b32": "and", "or_b32": "or", "xor_b32": "xor", "swap_b32": "swap"}
_ATOMICS |= {"cmpswap_b32": "cmpswap", "add_u64": "add_x2"}


def name_on_gfx9(name: str) -> str:
    """Return the name of an instruction on gfx9, which the table uses."""
    if name.startswith("ds_"):
        for new, old in (("load_2addr", "read2"), ("store_2addr", "write2"), ("_stride64", "st64")):
            name = name.replace(new, old)
        return name.replace("ds_load_", "ds_read_").replace("ds_store_", "ds_write_")
    if "_atomic_" in name:
        space, _, kind = name.partition("_atomic_")
        return f"{space}_atomic_{_ATOMICS.get(kind, kind)}"
    if match := _NUMBERED.fullmatch(name):
        return f"{match[1]}_{match[2]}"
    name = name.replace("_and_not1_", "_andn2_").replace("_or_not1_", "_orn2_").replace("_and_not0_", "_andn1_")
    return _RENAMED.get(name, name)


_NOTHING = re.compile(
    r"s_(nop|waitcnt\w*|wait_\w+|clause|delay_alu|sleep|setprio|sched_barrier|inst_prefetch|set_inst_prefetch_distance"
    r"|icache_inv|dcache_wb|dcache_inv|barrier_signal|code_end|ttracedata\w*)|v_nop"
    r"|buffer_(gl0_inv|gl1_inv|inv|wbl2|wbinvl1|wbinvl1_vol)|global_(inv|wb|wbinv)"
)


def does_nothing(name: str) -> bool:
    """Return whether an instruction only waits, or only concerns caches that are not modelled."""
    return bool(_NOTHING.fullmatch(name))
