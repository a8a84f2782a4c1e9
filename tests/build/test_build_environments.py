"""Environments: the requirements decide the folder; interrupted or concurrent creation leaves one complete one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from loopback import served
from wheel_factory import finished_wheel, make_wheel, metadata_text
from wheelfactory.build import environments
from wheelfactory.build.environments import (
    Base,
    Environment,
    build_requirements,
    clean_environ,
    cpu_torch_options,
    cpu_torch_requirement,
    find_base,
    keep_environment,
    make_empty_environment,
    numpy_requirements,
    open_wheel_environment,
    pip_install,
)
from wheelfactory.build.environments import make_layered_environment as layered
from wheelfactory.core.errors import BuildError
from wheelfactory.core.files import lock_folder
from wheelfactory.core.progress import ProgressCallback

pytestmark = pytest.mark.slow


def made(folder: Path, text: str) -> Environment:
    folder.mkdir()
    (folder / "content").write_text(text)
    return Environment(folder)


def test_of_two_parallel_runs_the_first_environment_is_kept(tmp_path: Path) -> None:
    keep_environment(made(tmp_path / "fast", "one"), tmp_path / "kept")
    keep_environment(made(tmp_path / "slow", "two"), tmp_path / "kept")
    assert (tmp_path / "kept/content").read_text() == "one"


def test_the_build_needs_a_cpu_torch_that_cuda_cannot_satisfy() -> None:
    assert cpu_torch_requirement().endswith("+cpu")
    assert all("==" in requirement for requirement in (*build_requirements(), *numpy_requirements()))


def test_pip_gets_the_cpu_index_if_it_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cpu/torch").mkdir(parents=True)
    with served(tmp_path) as site:
        for url, options in ((f"{site.url}/cpu", ("--extra-index-url", f"{site.url}/cpu")), (f"{site.url}/gone", ())):
            monkeypatch.setattr(environments, "CPU_INDEX", url)
            assert cpu_torch_options.__wrapped__() == options  # computed again, without the cache
    assert site.requests == ["/cpu/torch/", "/gone/torch/"]
    monkeypatch.setattr(environments, "CPU_INDEX", "http://127.0.0.1:9")
    assert cpu_torch_options.__wrapped__() == ()


def test_only_an_environment_that_is_made_asks_the_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def ask() -> tuple[str, ...]:
        asked.append("the index")
        return ()

    monkeypatch.setattr(environments, "cpu_torch_options", ask)
    monkeypatch.setattr(environments, "pip_install", lambda *_, **__: None)
    first, second = (environments.make_build_environment(tmp_path) for _ in range(2))
    assert first == second
    assert asked == ["the index"]


def test_an_environment_that_another_run_makes_is_awaited_and_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installs: list[Path] = []
    monkeypatch.setattr(environments, "pip_install", lambda made, *_, **__: installs.append(made.folder))
    name = environments.make_numpy_environment(tmp_path / "other").folder.name
    waiting = Thread(target=environments.make_numpy_environment, args=(tmp_path,))
    with lock_folder(tmp_path / "environments"):  # as the other run does
        waiting.start()
        waiting.join(0.2)
        assert waiting.is_alive()
        (tmp_path / name).mkdir()
    waiting.join()
    assert len(installs) == 1


def test_a_release_in_the_folder_of_the_cache_may_be_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments, "pip_install", lambda *_, **__: None)
    making = Thread(target=environments.make_numpy_environment, args=(tmp_path,), daemon=True)
    with lock_folder(tmp_path):
        making.start()
        making.join(60)
        assert not making.is_alive()


def test_every_python_has_exactly_one_numpy_requirement() -> None:
    """The emulator needs numpy 2."""
    requirements = [Requirement(line) for line in numpy_requirements()]
    for minor in range(10, 15):
        environment = {"python_version": f"3.{minor}"}
        (numpy,) = (item for item in requirements if item.marker is None or item.marker.evaluate(environment))
        assert numpy.name == "numpy"
        (pin,) = numpy.specifier
        assert Version(pin.version) >= Version("2")


def test_an_unavailable_requirement_is_an_error_and_nothing_is_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)  # a constraint of this machine would be another error
    monkeypatch.setattr(environments, "build_requirements", lambda: ("torch==0.0.0+cpu",))
    monkeypatch.setattr(environments, "cpu_torch_options", tuple)
    with pytest.raises(BuildError) as refused:
        environments.make_build_environment(tmp_path)
    assert "No matching distribution found for torch==0.0.0+cpu" in refused.value.which
    assert "or run the factory with another Python" in refused.value.hint
    assert [path.name for path in tmp_path.iterdir()] == ["environments"]


def test_a_large_download_reports_its_megabytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of 12 MB is shown, one of 2 MB is not."""
    reported: list[tuple[int, int]] = []

    @contextmanager
    def announced(_text: str) -> Iterator[ProgressCallback]:
        yield lambda done, total, _note="": reported.append((done, total))

    monkeypatch.setattr(environments, "announced_progress", announced)
    monkeypatch.setattr("wheelfactory.core.process._LOOK_S", 0.01)
    for name, megabytes in (("large", 12), ("small", 2)):
        members, metadata = {f"{name}.py": os.urandom(megabytes * 10**6)}, metadata_text("1", name=name)
        make_wheel(tmp_path / "wheels", name=name, version="1", members=members, metadata=metadata)
    environment = make_empty_environment(tmp_path / "env")
    with served(tmp_path / "wheels") as site:
        options = ("--no-cache-dir", "--no-index", "--no-compile", "--find-links", site.url)
        pip_install(environment, *options, "large", "small")
    assert {total for _, total in reported} == {12}
    assert [done for done, _ in reported] == sorted(done for done, _ in reported)
    assert (environment.site_packages / "small.py").exists()


def test_a_layered_environment_imports_packages_and_pth_files_of_its_layers(tmp_path: Path, this_python: str) -> None:
    base = make_empty_environment(tmp_path / "base")
    (base.site_packages / "lower.py").write_text("WORD = 'lower'\n")
    (base.site_packages / "nested.pth").write_text(f"{tmp_path}\n")
    (tmp_path / "nested_in_layer.py").write_text("WORD = 'nested'\n")
    upper = layered(tmp_path / "upper", base.python, this_python, [base.site_packages])
    code = "import lower, nested_in_layer; print(lower.WORD, nested_in_layer.WORD)"
    shown = subprocess.run([upper.python, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "lower nested\n"


def test_a_wheel_environment_is_layered_and_temporary(tmp_path: Path, this_python: str) -> None:
    base = make_empty_environment(tmp_path / "base")
    (base.site_packages / "lower.py").write_text("WORD = 'lower'\n")
    wheel = finished_wheel(tmp_path, members={"upper.py": b"WORD = 'upper'\n"}, tags="py3-none-any")
    found = find_base(base.python, this_python, os.environ)
    with open_wheel_environment(tmp_path / "cache", found, wheel) as environment:
        code = "import lower, upper; print(lower.WORD, upper.WORD)"
        shown = subprocess.run([environment.python, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "lower upper\n"
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_wheel_refused_by_pip_is_an_error_and_leaves_nothing(tmp_path: Path, this_python: str) -> None:
    base = make_empty_environment(tmp_path / "base")
    wheel = finished_wheel(tmp_path, metadata=metadata_text(requires_python=">=4"), tags="py3-none-any")
    with (
        pytest.raises(BuildError),
        open_wheel_environment(tmp_path / "cache", Base.of(base), wheel) as environment,
    ):
        pytest.fail(f"installed into {environment.folder}")
    assert list((tmp_path / "cache").iterdir()) == []


CHANGES_A_BUILD = (
    *("FLASH_ATTN_LOCAL_VERSION", "FLASH_ATTENTION_SKIP_CUDA_BUILD", "GPU_ARCHS", "OPT_DIM", "PYTORCH_ROCM_ARCH"),
    *("CK_TILE_FLOAT_TO_BFLOAT16_DEFAULT", "HIPCC_COMPILE_FLAGS_APPEND", "PYTORCH_NVCC", "CFLAGS", "CXXFLAGS"),
    *("CCACHE_IGNOREOPTIONS", "SCCACHE_DIR", "WHEELFACTORY_COMPILE_REQUEST"),
    *("PYTHONPATH", "PYTHONHOME", "MAX_JOBS", "BUILD_TRITON_BACKEND"),
)
NEEDED = ("PATH", "HOME", "ROCM_PATH", "HTTPS_PROXY", "PIP_INDEX_URL", "TMPDIR", "LD_LIBRARY_PATH")


def test_variables_that_change_a_build_are_removed_and_needed_ones_stay() -> None:
    needed = dict.fromkeys(NEEDED, "value")
    assert clean_environ({**needed, **dict.fromkeys(CHANGES_A_BUILD, "value")}) == needed
