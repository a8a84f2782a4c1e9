"""Which torch a version is, the index that has it, and the commands of pip and uv that install it."""

from __future__ import annotations

import pytest

from wheelfactory.core.published import pip_for, url_with_sha256, uv_for
from wheelfactory.core.torch_build import TorchOrigin, find_origin, find_own_index, rocm_of_torch

HIPS = {"10.1": "7.16", "10.0": "7.15", "7.2": "7.2"}
INDEXES = {"7.2": "https://download.pytorch.org/whl/rocm7.2"}


@pytest.mark.parametrize(
    ("version", "origin", "index"),
    [
        ("2.13.0+rocm7.2", TorchOrigin.PYTORCH, INDEXES["7.2"]),
        ("2.6.0+rocm6.2.4", TorchOrigin.PYTORCH, None),
        ("2.13.0+cu128", TorchOrigin.PYTORCH, None),
        ("2.15.0.dev20261101+rocm7.2", TorchOrigin.NIGHTLY, "https://download.pytorch.org/whl/nightly/rocm7.2"),
        ("2.12.0+rocm7.14.0", TorchOrigin.AMD, "https://repo.amd.com/rocm/whl-multi-arch/"),
        ("2.13.0+rocm10.0.0", TorchOrigin.AMD, "https://stable.repo.amd.com/rocm/whl-next/"),
        ("2.9.1+rocm7.2.0.lw.git7e1940d4", TorchOrigin.AMD, None),
        ("2.14.0a0+rocm10.1.0a20260811", TorchOrigin.AMD_NIGHTLY, "https://rocm.nightlies.amd.com/whl-multi-arch/"),
        ("2.13.0a0+gitabc1234", TorchOrigin.OTHER, None),
        ("2.12.1", TorchOrigin.OTHER, None),
    ],
)
def test_a_version_tells_who_built_it_and_where_it_is(version: str, origin: TorchOrigin, index: str | None) -> None:
    assert find_origin(version) is origin
    assert find_own_index(version, INDEXES) == index


@pytest.mark.parametrize(
    ("version", "hip", "named", "rocm"),
    [
        ("2.14.0+rocm10.0.0", "7.15.26333", None, (10, 0)),
        ("2.14.0", "7.15.26333", "10.0.0", (10, 0)),
        ("2.14.0", "7.16.1", None, (10, 1)),
        ("2.12.1", "7.2.53211", None, (7, 2)),
        ("2.9.1+rocm6.4", None, None, (6, 4)),
        ("2.13.0+cu128", None, None, None),
        ("2.13.0", "unknown", None, None),
    ],
)
def test_rocm_is_read_from_the_label_then_from_torch_then_from_hip(
    version: str, hip: str | None, named: str | None, rocm: tuple[int, int] | None
) -> None:
    assert rocm_of_torch(version, hip, named, HIPS) == rocm


PYTHON, INDEX = "/venv/bin/python", "https://wheels.example/simple/"


def test_an_index_replaces_the_default_one() -> None:
    for installer, command in (
        (pip_for(), f"pip install --index-url {INDEX} flash-attn"),
        (pip_for(PYTHON), f"{PYTHON} -m pip install --index-url {INDEX} flash-attn"),
        (uv_for(), f"uv pip install --default-index {INDEX} flash-attn"),
        (uv_for(PYTHON), f"uv pip install --python {PYTHON} --default-index {INDEX} flash-attn"),
    ):
        assert installer.install_from_index(INDEX, "flash-attn") == tuple(command.split())


def test_wheels_are_installed_without_dependencies() -> None:
    for installer, again, command in (
        (pip_for(PYTHON), False, f"{PYTHON} -m pip install --no-deps a b"),
        (pip_for(PYTHON), True, f"{PYTHON} -m pip install --no-deps --force-reinstall a b"),
        (uv_for(PYTHON), True, f"uv pip install --python {PYTHON} --no-deps --reinstall a b"),
    ):
        assert installer.install_without_dependencies("a", "b", again=again) == tuple(command.split())


def test_torch_comes_from_one_index_with_its_dependencies() -> None:
    for installer, options, command in (
        (pip_for(PYTHON), [], f"{PYTHON} -m pip install torch==2.9.* --index-url {INDEX}"),
        (uv_for(PYTHON), ["-U"], f"uv pip install --python {PYTHON} -U torch==2.9.* --default-index {INDEX}"),
    ):
        assert installer.install_torch(*options, "torch==2.9.*", index=INDEX) == tuple(command.split())


def test_pip_uninstalls_without_confirmation() -> None:
    assert pip_for(PYTHON).uninstall_command == (PYTHON, "-m", "pip", "uninstall", "--yes")
    assert uv_for(PYTHON).uninstall_command == ("uv", "pip", "uninstall", "--python", PYTHON)


def test_a_url_ends_in_the_digest_that_pip_verifies() -> None:
    assert url_with_sha256("https://host/a.whl", "00ff") == "https://host/a.whl#sha256=00ff"
