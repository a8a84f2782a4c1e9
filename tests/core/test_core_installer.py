"""The install commands of pip and uv."""

from __future__ import annotations

from wheelfactory.core.installer import pip_for, url_with_sha256, uv_for

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
    for installer, again, command in (
        (pip_for(PYTHON), False, f"{PYTHON} -m pip install torch==2.9.* --index-url {INDEX}"),
        (pip_for(PYTHON), True, f"{PYTHON} -m pip install --force-reinstall torch==2.9.* --index-url {INDEX}"),
        (uv_for(PYTHON), True, f"uv pip install --python {PYTHON} --reinstall torch==2.9.* --default-index {INDEX}"),
    ):
        assert installer.install_torch("torch==2.9.*", INDEX, again=again) == tuple(command.split())


def test_pip_uninstalls_without_confirmation() -> None:
    assert pip_for(PYTHON).uninstall_command == (PYTHON, "-m", "pip", "uninstall", "--yes")
    assert uv_for(PYTHON).uninstall_command == ("uv", "pip", "uninstall", "--python", PYTHON)


def test_a_url_ends_in_the_digest_that_pip_verifies() -> None:
    assert url_with_sha256("https://host/a.whl", "00ff") == "https://host/a.whl#sha256=00ff"
