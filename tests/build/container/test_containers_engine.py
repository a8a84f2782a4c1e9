"""Which engine is asked, what is known of it, and what a person is told where none answers."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

import wheelfactory.build.container.engine as engine_room
from wheelfactory.build.container.engine import Engine, connect_engine, find_engine_urls
from wheelfactory.core.errors import BuildError


def test_docker_host_is_the_only_address_where_it_is_set() -> None:
    assert list(find_engine_urls({"DOCKER_HOST": "unix:///run/mine.sock"})) == ["unix:///run/mine.sock"]


def test_docker_is_looked_for_before_podman_and_the_own_engine_of_a_user_where_their_sockets_are() -> None:
    assert list(find_engine_urls({"XDG_RUNTIME_DIR": "/run/me"})) == [
        "unix:///var/run/docker.sock",
        "unix:///run/me/docker.sock",
        "unix:///run/me/podman/podman.sock",
        "unix:///run/podman/podman.sock",
    ]


def test_without_a_runtime_directory_that_of_the_user_id_is_looked_into() -> None:
    assert f"unix:///run/user/{os.getuid()}/docker.sock" in list(find_engine_urls({}))


@pytest.mark.parametrize("url", ["tcp://10.0.0.7:2375", "ssh://builder@far", "npipe:////./pipe/docker_engine"])
def test_an_engine_on_another_machine_is_refused_because_it_cannot_be_handed_folders(url: str) -> None:
    with pytest.raises(BuildError) as refused:
        connect_engine({"DOCKER_HOST": url})
    assert refused.value.what == "the container engine must be on this machine"
    assert url in refused.value.which
    assert "folders of this machine" in refused.value.hint


def test_where_no_engine_has_a_socket_a_person_is_told_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="no container engine answers") as absent:
        connect_engine({"DOCKER_HOST": f"unix://{tmp_path}/none.sock"})
    assert f"unix://{tmp_path}/none.sock" in absent.value.which
    assert "systemctl start docker" in absent.value.hint and "--executor local" in absent.value.hint


def test_a_socket_that_nobody_serves_is_told_rather_than_those_that_are_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of several addresses, the one where something once was says more about what is wrong."""
    left, absent = tmp_path / "left.sock", tmp_path / "absent.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(left))  # and never listens
    monkeypatch.setattr(engine_room, "addresses", lambda _: [f"unix://{absent}", f"unix://{left}"])
    with pytest.raises(BuildError, match="no container engine answers") as told:
        connect_engine({})
    assert "left.sock" in told.value.which and "Connection refused" in told.value.which


@pytest.mark.slow
def test_an_engine_that_answers_says_where_its_images_are_and_who_runs_containers(engine: Engine) -> None:
    assert engine.user == f"{os.getuid()}:{os.getgid()}"
    assert engine.storage.is_absolute()


@pytest.mark.slow
def test_the_free_room_is_that_of_the_engines_storage_or_unknown(engine: Engine, tmp_path: Path) -> None:
    found = replace(engine, storage=tmp_path).free_gb()
    state = os.statvfs(tmp_path)
    assert found == pytest.approx(state.f_bavail * state.f_frsize / 1e9, rel=0.05)
    assert replace(engine, storage=tmp_path / "none").free_gb() is None


@pytest.mark.slow
@pytest.mark.parametrize(("bridge", "network"), [(True, None), (False, "host")])
def test_the_steps_of_an_image_have_the_network_of_this_machine_only_where_there_is_no_other(
    engine: Engine, bridge: bool, network: str | None
) -> None:
    assert replace(engine, has_bridge_network=bridge).build_network == network
