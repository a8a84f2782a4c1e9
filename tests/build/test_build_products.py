"""Wheels from pinned sources: plain ones, built once and keyed by content, and the Triton-only wheel of aiter."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from aiter_factory import VERSION, WHEEL, aiter_machine, make_aiter_repository
from rocm_machine import make_machine
from wheel_factory import MATRIX, keep_plain, make_wheel, read_zip, small_machine, tamper
from wheelfactory.build.environments import cached_wheel
from wheelfactory.build.products import build_wheel, make_plain_wheel, pin_product, pin_release
from wheelfactory.core.cell import AITER_NAME
from wheelfactory.core.errors import BuildError, InputError
from wheelfactory.core.files import file_sha256
from wheelfactory.matrix.facts import Context, Matrix
from wheelfactory.matrix.load import load_matrix
from wheelfactory.matrix.origins import Dependency
from wheelfactory.verify.contents import expected_from_aiter
from wheelfactory.verify.gates import PRODUCT_GATES, product_gates, required_gates, verify
from wheelfactory.verify.result import GateResult, Status
from wheelfactory.wheel.read import Wheel
from wheelfactory.wheel.rewrite import finish_pure_wheel

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


@pytest.fixture(scope="module")
def dependency(tmp_path_factory: pytest.TempPathFactory) -> Dependency:
    return make_aiter_repository(tmp_path_factory.mktemp("aiter"))


def build(dependency: Dependency, cache: Path, folder: Path) -> Path:
    """Build with a cache of its own, whose environments are those of the shared one."""
    own = make_machine(folder / "own", cache, {}).cache
    return build_wheel(pin_product(AITER_NAME, aiter_machine(own, dependency, os.environ)), folder / "dist", own)


@pytest.fixture(scope="module")
def built(dependency: Dependency, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(dependency, cache, tmp_path_factory.mktemp("built"))


@pytest.mark.slow
def test_the_wheel_serves_every_platform_and_asks_for_nothing_that_no_index_has(built: Path) -> None:
    wheel = Wheel.open(built)

    assert wheel.path.name == WHEEL
    assert str(wheel.metadata["Version"]) == VERSION
    assert wheel.metadata.get_all("Requires-Dist") == ["einops"]
    members = read_zip(wheel.path)
    assert b"Root-Is-Purelib: true\nTag: py3-none-any\n" in members[f"{wheel.dist_info}/WHEEL"]


@pytest.mark.slow
def test_two_builds_of_one_commit_give_the_same_bytes(
    built: Path, dependency: Dependency, cache: Path, tmp_path: Path
) -> None:
    before = os.umask(0o077)
    try:
        again = build(dependency, cache, tmp_path)
    finally:
        os.umask(before)
    assert file_sha256(again) == file_sha256(built)


@pytest.mark.slow
def test_another_name_than_the_pinned_one_is_an_error(dependency: Dependency, cache: Path, tmp_path: Path) -> None:
    other = dependency.model_copy(update={"wheel": "amd_aiter-0.0.1-py3-none-any.whl"})
    own = make_machine(tmp_path / "own", cache, {}).cache

    with pytest.raises(BuildError, match="unexpected wheel"):
        build_wheel(pin_product(AITER_NAME, aiter_machine(own, other, os.environ)), tmp_path, own)


@pytest.mark.slow
def test_a_matrix_without_it_cannot_verify_it(built: Path, given: Context) -> None:
    without: Context = replace(given, matrix=given.matrix.model_copy(update={"dependencies": {}}))

    with pytest.raises(InputError, match=r"matrix\.yaml builds no aiter"):
        verify(built, context=without)


def test_compiled_code_is_never_called_pure(tmp_path: Path) -> None:
    raw = make_wheel(
        tmp_path, name="amd_aiter", version="0.0.0", members={"aiter/jit/module.so": b"\x7fELF" + bytes(60)}
    )

    with pytest.raises(InputError):
        finish_pure_wheel(raw, VERSION, frozenset(), tmp_path / "dist")


# -- verified


@pytest.fixture
def given(dependency: Dependency, cache: Path, tmp_path: Path) -> Context:
    """A machine that can build it; sizes are not looked at, because this aiter is small."""
    return aiter_machine(make_machine(tmp_path / "gates", cache, {}).cache, dependency, os.environ)


@pytest.fixture(autouse=True)
def _any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PRODUCT_GATES, AITER_NAME, product_gates(expected_from_aiter, range(1, 10**6)))


def failed(results: tuple[GateResult, ...]) -> dict[str, str]:
    return {result.gate: str(result.findings[0]) for result in results if result.status is Status.FAILED}


@pytest.mark.slow
def test_it_passes_the_gates_of_every_wheel(built: Path, given: Context) -> None:
    results = verify(built, context=given)

    assert tuple(result.gate for result in results) == required_gates(AITER_NAME)
    assert {result.status for result in results} == {Status.PASSED}


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"aiter/evil.py": b""}, id="added"),
        pytest.param({f"amd_aiter-{VERSION}.dist-info/METADATA": b"Name: amd-aiter\nVersion: 1\n"}, id="metadata"),
    ],
)
def test_what_is_not_of_the_commit_is_refused(
    change: dict[str, bytes], built: Path, given: Context, tmp_path: Path
) -> None:
    path = Path(shutil.copy(built, tmp_path))
    tamper(path, change)

    assert "contents" in failed(verify(path, context=given))
