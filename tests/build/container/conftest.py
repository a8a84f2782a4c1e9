"""An engine of the tests' own, an image like AMD's in it, and a matrix that names that image."""

from __future__ import annotations

import gc
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

import container_engine
import container_images
from container_project import CELL, write_matrix
from wheelfactory.build.engine import Engine, connect_engine
from wheelfactory.build.image import build_image, render_dockerfile
from wheelfactory.matrix.load import load_matrix


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The SDK leaves its sockets to the garbage collector, at the latest when an engine does not answer."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


@pytest.fixture(scope="module", autouse=True)
def _sockets_closed() -> Iterator[None]:
    """No test elsewhere hears of a socket that was left here."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """An engine that runs as long as the tests; without one they are skipped."""
    container_engine.skip_unless(container_engine.find_missing_requirement())
    with container_engine.engine(container_engine.FOLDER) as started:
        found = connect_engine({"DOCKER_HOST": started.url})
        yield found
        found.client.close()


@pytest.fixture(scope="session")
def base(engine: Engine, cache: Path) -> str:
    """The tag of an image laid out as rocm/pytorch is, in the engine."""
    container_engine.skip_unless(container_images.find_missing_requirement())
    return container_images.make_rocm_pytorch(cache, engine.client)


@pytest.fixture(scope="session")
def matrix_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The matrix of the checkout with the stand-in as the image of ROCm 7.2, and with the releases of the tests."""
    return write_matrix(tmp_path_factory.mktemp("matrix") / "matrix.yaml")


@pytest.fixture(scope="session")
def cell_image(engine: Engine, base: str, matrix_file: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The tag of the image that the cells of the tests are built in, made as the factory makes it."""
    log = tmp_path_factory.mktemp("image") / "image.log"
    return build_image(engine, render_dockerfile(load_matrix(matrix_file), CELL), log, lambda *_: None)


@pytest.fixture
def soon() -> float:
    """A deadline that no test needs, for what would otherwise wait for ever."""
    return time.time() + 600
