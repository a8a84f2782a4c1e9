"""The environment that builds see: nothing in it may change a wheel unseen."""

from __future__ import annotations

import pytest

from wheelfactory.build.clean_environ import clean_environ


@pytest.mark.parametrize(
    "name",
    [
        *("FLASH_ATTN_LOCAL_VERSION", "FLASH_ATTENTION_SKIP_CUDA_BUILD", "GPU_ARCHS", "OPT_DIM", "PYTORCH_ROCM_ARCH"),
        *("CK_TILE_FLOAT_TO_BFLOAT16_DEFAULT", "HIPCC_COMPILE_FLAGS_APPEND", "PYTORCH_NVCC", "CFLAGS", "CXXFLAGS"),
        *("CCACHE_IGNOREOPTIONS", "SCCACHE_DIR", "WHEELFACTORY_CCACHE"),
        *("PYTHONPATH", "PYTHONHOME", "MAX_JOBS", "BUILD_TRITON_BACKEND"),
    ],
)
def test_what_would_change_a_build_is_taken_out(name: str) -> None:
    assert clean_environ({"PATH": "/bin", name: "something"}) == {"PATH": "/bin"}


@pytest.mark.parametrize("name", ["HOME", "ROCM_PATH", "HTTPS_PROXY", "PIP_INDEX_URL", "TMPDIR", "LD_LIBRARY_PATH"])
def test_what_a_build_needs_of_the_machine_is_kept(name: str) -> None:
    assert clean_environ({name: "something"}) == {name: "something"}
