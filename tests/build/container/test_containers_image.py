"""Images pulled by a real engine from a registry on loopback, and made by it: the progress, and the errors."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from docker.errors import ImageNotFound

from container_engine import KIND
from container_project import BASE, CELL
from pull_registry import LAYER_BYTES, TAG, PullRegistry, running_pull_registry
from wheelfactory.build.engine import Engine
from wheelfactory.build.image import Dockerfile, build_image, has_image, pull_image, remove_image, render_dockerfile
from wheelfactory.core.errors import BuildError
from wheelfactory.matrix.load import load_matrix
from wheelfactory.matrix.origins import Image

pytestmark = pytest.mark.slow

NUMBERS = itertools.count(1)
"""Of images, so that no engine has a layer already."""


def silent(_done: int, _total: int, _told: str = "") -> None:
    """Tells nobody."""


@pytest.fixture
def registry(engine: Engine) -> Iterator[PullRegistry]:
    """A registry with an image that the engine does not have, and will not keep."""
    if KIND == "podman":
        pytest.skip("podman wants TLS on loopback too")
    with running_pull_registry(next(NUMBERS)) as running:
        yield running
        for reference in (f"{running.repository}:{TAG}", f"{running.repository}@{running.digest}"):
            try:
                engine.client.images.remove(reference, force=True)
            except ImageNotFound:
                continue


def image(registry: PullRegistry, tag: str = TAG, digest: str | None = None, disk: str | None = None) -> Image:
    return Image.model_validate({**BASE, "tag": f"{registry.repository}:{tag}", "digest": digest, "disk": disk})


def test_an_image_is_pulled_by_its_digest_whatever_its_tag_says_by_now(engine: Engine, registry: PullRegistry) -> None:
    wanted = image(registry, tag="moved", digest=registry.digest)
    pull_image(engine, wanted, silent)
    assert has_image(engine, wanted.reference)
    assert not any(path.endswith("/moved") for path in registry.asked)


def test_what_has_come_of_it_is_told_in_bytes(engine: Engine, registry: PullRegistry) -> None:
    registry.pause = 0.1  # engines tell it ten times a second at most
    steps: list[tuple[int, int, str]] = []
    pull_image(engine, image(registry), lambda *step: steps.append(step))
    sizes = {total for _, total, _ in steps}
    assert len(sizes) == 1 and min(sizes) >= LAYER_BYTES
    done = [done for done, _, _ in steps]
    assert done == sorted(done) and len(set(done)) > 2
    assert done[-1] == steps[-1][1]
    assert {text for _, _, text in steps} == {"pulling"}


def test_an_image_that_is_here_is_not_pulled_again(engine: Engine, registry: PullRegistry) -> None:
    pull_image(engine, image(registry), silent)
    registry.asked.clear()
    pull_image(engine, image(registry), silent)
    assert registry.asked == []


def test_a_tag_that_the_registry_does_not_have_is_told_with_the_way_to_find_another(
    engine: Engine, registry: PullRegistry
) -> None:
    with pytest.raises(BuildError, match="no such image") as refused:
        pull_image(engine, image(registry, tag="none"), silent)
    assert f"{registry.repository}:none" in refused.value.which
    assert "refresh --online" in refused.value.hint


@pytest.mark.parametrize(
    ("status", "what", "cure"),
    [
        (401, "the registry denies access to the image", "docker login"),
        (429, "pull limit of the registry reached", "docker login"),
    ],
)
def test_a_registry_that_refuses_is_told_with_its_reason(
    engine: Engine, registry: PullRegistry, status: int, what: str, cure: str
) -> None:
    registry.status = status
    with pytest.raises(BuildError, match=what) as refused:
        pull_image(engine, image(registry), silent)
    assert cure in refused.value.hint


def test_a_network_that_is_lost_for_good_is_told_as_that(engine: Engine) -> None:
    with running_pull_registry(next(NUMBERS)) as registry:
        gone = image(registry)
    with pytest.raises(BuildError, match="network failure") as lost:
        pull_image(engine, gone, silent)
    assert "then run the same command again" in lost.value.hint


def test_an_image_that_is_not_what_its_digest_says_is_refused(engine: Engine, registry: PullRegistry) -> None:
    registry.other = registry.manifest + b"\n"
    with pytest.raises(BuildError, match="the image does not match its digest") as refused:
        pull_image(engine, image(registry, digest=registry.digest), silent)
    assert "matrix.yaml" in refused.value.hint


def test_an_image_for_which_there_is_no_room_is_refused_before_the_registry_is_asked(
    engine: Engine, registry: PullRegistry, tmp_path: Path
) -> None:
    with pytest.raises(BuildError, match="no disk space for the image") as refused:
        pull_image(replace(engine, storage=tmp_path), image(registry, disk="9999 GB"), silent)
    assert "needs 9999 GB" in refused.value.which and str(tmp_path) in refused.value.which
    assert "--slim" in refused.value.hint
    assert registry.asked == []


def test_an_image_is_pulled_where_the_engines_storage_cannot_be_seen(engine: Engine, registry: PullRegistry) -> None:
    pull_image(replace(engine, storage=Path("/nowhere/at/all")), image(registry, disk="9999 GB"), silent)
    assert has_image(engine, f"{registry.repository}:{TAG}")


def dockerfile(base: str, step: str) -> Dockerfile:
    return Dockerfile(f"FROM {base}\nRUN {step}\n", {}, python="/usr/bin/python3", rocm="/opt/rocm")


def test_a_step_that_fails_is_told_with_its_last_lines_and_its_log_and_leaves_no_container(
    engine: Engine, base: str, tmp_path: Path
) -> None:
    before = {container.id for container in engine.client.containers.list(all=True)}
    wanted = dockerfile(base, "seq 1000 && echo E: Unable to locate package patchelf && exit 100")
    with pytest.raises(BuildError, match="cannot build the image") as failed:
        build_image(engine, wanted, tmp_path / "logs/image.log", silent)
    assert wanted.tag in failed.value.which
    assert "Unable to locate package patchelf" in failed.value.which and "100" in failed.value.which
    assert "\n500\n" not in failed.value.which
    assert failed.value.hint == f"a step of its Dockerfile failed; the full log is {tmp_path}/logs/image.log"
    assert "\n500\n" in (tmp_path / "logs/image.log").read_text()
    assert not has_image(engine, wanted.tag)
    assert {container.id for container in engine.client.containers.list(all=True)} == before


def test_the_steps_of_an_image_are_counted_while_it_is_made(engine: Engine, base: str, tmp_path: Path) -> None:
    steps: list[tuple[int, int, str]] = []
    wanted = dockerfile(base, "true")
    try:
        assert build_image(engine, wanted, tmp_path / "image.log", lambda *step: steps.append(step)) == wanted.tag
    finally:
        engine.client.images.remove(wanted.tag)
    assert steps == [(0, 2, "building the image"), (1, 2, "building the image")]


def test_a_removed_image_leaves_its_base(engine: Engine, base: str, tmp_path: Path) -> None:
    wanted = dockerfile(base, "touch /mine")
    build_image(engine, wanted, tmp_path / "image.log", silent)
    for _ in range(2):  # removing it again is no error
        remove_image(engine, wanted.tag)
        assert not has_image(engine, wanted.tag)
    assert has_image(engine, base)


def test_an_image_that_is_here_is_not_made_again(
    engine: Engine, cell_image: str, matrix_file: Path, tmp_path: Path
) -> None:
    assert (
        build_image(engine, render_dockerfile(load_matrix(matrix_file), CELL), tmp_path / "image.log", silent)
        == cell_image
    )
    assert not (tmp_path / "image.log").exists()
