"""Plain builds: setuptools builds the pinned sources once, keyed by content, in any environment."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from rocm_machine import make_machine
from wheel_factory import MATRIX, keep_plain, make_wheel, small_machine
from wheelfactory.build.environments import cached_wheel
from wheelfactory.build.pinned import make_plain_wheel, pin_release
from wheelfactory.core.errors import BuildError
from wheelfactory.matrix.facts import Matrix
from wheelfactory.matrix.load import load_matrix

ROOT = Path(__file__).parents[2]
RELEASE = MATRIX.flash_attn["2.8.3"]


def test_a_cached_plain_wheel_is_used_only_for_its_own_sources(tmp_path: Path) -> None:
    kept = keep_plain(tmp_path)
    given = small_machine(tmp_path)
    assert make_plain_wheel(pin_release("2.8.3", given), tmp_path, may_build=False).path == kept

    assert RELEASE.sdist
    other = RELEASE.model_copy(update={"sdist": RELEASE.sdist.model_copy(update={"sha256": "c" * 64})})
    matrix: Matrix = MATRIX.model_copy(update={"flash_attn": {"2.8.3": other}})
    with pytest.raises(BuildError, match=r"missing plain wheel to compare with: flash-attn 2\.8\.3"):
        make_plain_wheel(pin_release("2.8.3", replace(given, matrix=matrix)), tmp_path, may_build=False)


def nothing_built(cache: Path, folder: Path) -> Path:
    """A cache with the downloads and environments of another, and no plain build."""
    own = make_machine(folder / "own", cache, {}).cache
    (own / "plain").unlink()
    return own


def test_a_truncated_wheel_in_the_cache_is_built_again(tmp_path: Path) -> None:
    made = make_wheel(tmp_path / "made")
    kept = cached_wheel(tmp_path / "folder", tmp_path, lambda _: made)
    for length in (0, 1000, made.stat().st_size - 1):
        kept.write_bytes(made.read_bytes()[:length])
        assert cached_wheel(tmp_path / "folder", tmp_path, lambda _: made).read_bytes() == made.read_bytes()


@pytest.mark.slow
def test_a_plain_wheel_has_no_backend_in_any_environment(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flags for another build would give another version, or compile for hours."""
    monkeypatch.setenv("FLASH_ATTN_LOCAL_VERSION", "evil")
    monkeypatch.setenv("FLASH_ATTENTION_SKIP_CUDA_BUILD", "FALSE")
    own = nothing_built(cache, tmp_path)
    given = replace(small_machine(own, os.environ), matrix=load_matrix(ROOT / "matrix.yaml"))
    wheel = make_plain_wheel(pin_release("2.8.3", given), own)

    assert wheel.path.name == "flash_attn-2.8.3-py3-none-any.whl"
    assert "flash_attn/flash_attn_interface.py" in wheel.sizes
    assert not [name for name in wheel.sizes if name.endswith((".so", ".pth"))]
    assert "Requires-Dist: torch" in wheel.metadata_text.splitlines()
