"""A build's environment has no variable that would change the wheel unnoticed."""

from __future__ import annotations

from wheelfactory.build.clean_environ import clean_environ

CHANGES_A_BUILD = (
    *("FLASH_ATTN_LOCAL_VERSION", "FLASH_ATTENTION_SKIP_CUDA_BUILD", "GPU_ARCHS", "OPT_DIM", "PYTORCH_ROCM_ARCH"),
    *("CK_TILE_FLOAT_TO_BFLOAT16_DEFAULT", "HIPCC_COMPILE_FLAGS_APPEND", "PYTORCH_NVCC", "CFLAGS", "CXXFLAGS"),
    *("CCACHE_IGNOREOPTIONS", "SCCACHE_DIR", "WHEELFACTORY_COMPILE_REQUEST"),
    *("PYTHONPATH", "PYTHONHOME", "MAX_JOBS", "BUILD_TRITON_BACKEND"),
)
NEEDED = ("PATH", "HOME", "ROCM_PATH", "HTTPS_PROXY", "PIP_INDEX_URL", "TMPDIR", "LD_LIBRARY_PATH")


def test_variables_that_change_a_build_are_removed_and_needed_ones_stay() -> None:
    needed = dict.fromkeys(NEEDED, "value")
    assert clean_environ({**needed, **dict.fromkeys(CHANGES_A_BUILD, "value")}) == needed
