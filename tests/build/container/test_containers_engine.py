"""Which engine is used, what it reports of itself, and the error where none answers."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

import wheelfactory.build.engine as engine_room
from wheelfactory.build.engine import Engine, connect_engine, find_engine_urls
from wheelfactory.core.errors import BuildError


def test_docker_is_tried_before_podman_at_the_usual_sockets_unless_docker_host_names_one() -> None:
    assert list(find_engine_urls({"XDG_RUNTIME_DIR": "/run/me"})) == [
        "unix:///var/run/docker.sock",
        "unix:///run/me/docker.sock",
        "unix:///run/me/podman/podman.sock",
        "unix:///run/podman/podman.sock",
    ]
    assert f"unix:///run/user/{os.getuid()}/docker.sock" in list(find_engine_urls({}))
    assert list(find_engine_urls({"DOCKER_HOST": "unix:///run/mine.sock"})) == ["unix:///run/mine.sock"]


def test_an_engine_on_another_machine_is_refused() -> None:
    for url in ("tcp://10.0.0.7:2375", "ssh://builder@far", "npipe:////./pipe/docker_engine"):
        with pytest.raises(BuildError, match=f"^the container engine must be on this machine: .*{url}") as refused:
            connect_engine({"DOCKER_HOST": url})
        assert "folders of this machine" in refused.value.hint


def test_without_any_socket_the_hint_says_how_to_start_an_engine(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="no container engine answers") as absent:
        connect_engine({"DOCKER_HOST": f"unix://{tmp_path}/none.sock"})
    assert f"unix://{tmp_path}/none.sock" in absent.value.which
    assert "systemctl start docker" in absent.value.hint and "--executor local" in absent.value.hint


def test_an_unserved_socket_is_reported_rather_than_a_missing_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of several addresses, the one where something once was says more about what is wrong."""
    left, absent = tmp_path / "left.sock", tmp_path / "absent.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(left))  # and never listens
    monkeypatch.setattr(engine_room, "find_engine_urls", lambda _: [f"unix://{absent}", f"unix://{left}"])
    with pytest.raises(BuildError, match="no container engine answers") as error:
        connect_engine({})
    assert "left.sock" in error.value.which and "Connection refused" in error.value.which


@pytest.mark.slow
def test_a_connected_engine_knows_its_storage_and_user(engine: Engine) -> None:
    assert engine.user == f"{os.getuid()}:{os.getgid()}"
    assert engine.storage.is_absolute()


@pytest.mark.slow
def test_free_disk_space_is_read_from_the_engines_storage(engine: Engine, tmp_path: Path) -> None:
    found = replace(engine, storage=tmp_path).free_gb()
    state = os.statvfs(tmp_path)
    assert found == pytest.approx(state.f_bavail * state.f_frsize / 1e9, rel=0.05)
    assert replace(engine, storage=tmp_path / "none").free_gb() is None
