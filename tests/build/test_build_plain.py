"""Plain builds: setuptools builds the pinned sources once, keyed by content, in any environment."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rocm_machine import make_machine
from wheel_factory import MATRIX, keep_plain, read_zip
from wheelfactory.build.fallback import read_fallback_project
from wheelfactory.build.plain import PlainBuilds
from wheelfactory.core.errors import BuildError
from wheelfactory.matrix.load import load_matrix

ROOT = Path(__file__).parents[2]
RELEASE = MATRIX.flash_attn["2.8.3"]


def test_a_cached_plain_wheel_is_used_only_for_its_own_sources(tmp_path: Path) -> None:
    kept = keep_plain(tmp_path)
    builds = PlainBuilds(tmp_path, {}, may_build=False)
    assert builds.make_flash_attn_wheel("2.8.3", RELEASE).path == kept

    assert RELEASE.sdist
    other = RELEASE.model_copy(update={"sdist": RELEASE.sdist.model_copy(update={"sha256": "c" * 64})})
    with pytest.raises(BuildError, match=r"missing plain wheel to compare with: flash-attn 2\.8\.3"):
        builds.make_flash_attn_wheel("2.8.3", other)


def test_the_digests_name_every_file(tmp_path: Path) -> None:
    kept = keep_plain(tmp_path)
    builds = PlainBuilds(tmp_path, {})
    assert list(builds.read_digests()) == [f"{kept.parent.name}/{kept.name}"]
    (kept.parent / "more").write_bytes(b"")
    assert len(builds.read_digests()) == 2


def nothing_built(cache: Path, folder: Path) -> Path:
    """A cache with the downloads and environments of another, and no plain build."""
    own = make_machine(folder / "own", cache, {}).cache
    (own / "plain").unlink()
    return own


@pytest.mark.slow
def test_a_plain_wheel_has_no_backend_in_any_environment(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flags for another build would give another version, or compile for hours."""
    monkeypatch.setenv("FLASH_ATTN_LOCAL_VERSION", "evil")
    monkeypatch.setenv("FLASH_ATTENTION_SKIP_CUDA_BUILD", "FALSE")
    own = nothing_built(cache, tmp_path)
    wheel = PlainBuilds(own, os.environ).make_flash_attn_wheel(
        "2.8.3", load_matrix(ROOT / "matrix.yaml").flash_attn["2.8.3"]
    )

    assert wheel.path.name == "flash_attn-2.8.3-py3-none-any.whl"
    assert "flash_attn/flash_attn_interface.py" in wheel.sizes
    assert not [name for name in wheel.sizes if name.endswith((".so", ".pth"))]
    assert "Requires-Dist: torch" in wheel.metadata_text.splitlines()


@pytest.mark.slow
def test_the_fallback_is_built_from_the_checkout(cache: Path, tmp_path: Path) -> None:
    project = read_fallback_project()
    wheel = PlainBuilds(nothing_built(cache, tmp_path), os.environ).make_fallback_wheel(project)

    held = {name: data for name, data in read_zip(wheel.path).items() if ".dist-info/" not in name}
    assert held == project.members
