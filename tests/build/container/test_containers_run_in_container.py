"""What a build sees, may and leaves in a real container, run by the real build_rocm.sh with a setup.py of the tests."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from container_project import make_command
from wheelfactory.build.container import ResourceShare, run_in_container
from wheelfactory.build.engine import Engine
from wheelfactory.core.files import BUILD_SCRIPT

pytestmark = pytest.mark.slow

SHARE = ResourceShare(cores=1.5, memory_gib=1.0)

LOOKS_AROUND = """\
import json, os
from pathlib import Path
from wheelfactory.core.host import free_mib

def attempt(what):
    try:
        what()
    except OSError as error:
        return type(error).__name__
    return "done"

source, raw = Path(os.environ["SOURCE_DIR"]), Path(os.environ["RAW_DIR"])
seen = {
    "environ": dict(os.environ),
    "cwd": os.getcwd(),
    "wrote to sources": attempt(lambda: (source / "setup.py").write_text("")),
    "added to sources": attempt(lambda: (source / "new").mkdir()),
    "moved the sources": attempt(lambda: source.rename(source.parent / "other")),
    "added to the checkout": attempt(lambda: Path(os.environ["PYTHONPATH"], "x").mkdir()),
    "wrote to its copy": attempt(lambda: Path("new").mkdir()),
    "ids": [os.getuid(), os.getgid()],
    "free MiB": free_mib(),
    "devices": sorted(os.listdir("/dev")),
}
(raw / "seen.json").write_text(json.dumps(seen))
print("on stdout of setup.py")
"""


@pytest.fixture(scope="module")
def done(engine: Engine, base: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of a command that listed its surroundings, and its output; its caller's environment had a secret."""
    folder = tmp_path_factory.mktemp("around")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SECRET_TOKEN", "of the caller")
        wanted = make_command(folder, LOOKS_AROUND, time.time() + 600, ASKED_FOR="yes")
        return folder, run_in_container(engine, base, folder, SHARE, wanted, lambda *_: None)


@pytest.fixture(scope="module")
def seen(done: tuple[Path, str]) -> Mapping[str, Any]:
    """What the command found."""
    found: dict[str, Any] = json.loads((done[0] / "scratch/raw/seen.json").read_text())
    return found


def test_the_path_of_the_wheel_is_all_it_prints_and_the_rest_is_in_the_log(done: tuple[Path, str]) -> None:
    folder, printed = done
    wheel = folder / "scratch/raw/flash_attn-9.9.0-py3-none-any.whl"
    assert printed == f"{wheel}\n"
    assert wheel.is_file()
    lines = (folder / "cell.log").read_text().splitlines()
    assert lines[0].startswith(f"+ {BUILD_SCRIPT}")
    assert "on stdout of setup.py" in lines


def test_it_changes_only_its_copy_of_the_sources_and_sees_no_disk_and_no_gpu(
    done: tuple[Path, str], seen: Mapping[str, Any]
) -> None:
    for attempt in ("wrote to sources", "added to sources", "moved the sources", "added to the checkout"):
        assert seen[attempt] == "OSError", attempt  # EROFS, or EBUSY for the mount: no right could be had to do it
    assert (seen["cwd"], seen["wrote to its copy"]) == ("/tmp/flash-attn", "done")  # noqa: S108 - in the container
    assert [path.name for path in (done[0] / "scratch/source").iterdir()] == ["setup.py"]
    expected = {"core", "fd", "full", "mqueue", "null", "ptmx", "pts", "random", "shm", "tty", "urandom", "zero"}
    assert set(seen["devices"]) <= expected | {"stdin", "stdout", "stderr", "console"}


def test_it_has_no_variable_of_the_caller(seen: Mapping[str, Any], engine: Engine, base: str) -> None:
    assert seen["environ"]["ASKED_FOR"] == "yes"
    assert seen["environ"]["STAND_IN_TORCH"], "of the image"
    assert "of the caller" not in seen["environ"].values()
    own = {"HOSTNAME", "PWD", "OLDPWD", "SHLVL", "_", "LC_CTYPE", "TERM", "container"}  # of shell, Python and engine
    given = {"PATH", "HOME", "SOURCE_DIR", "WORK_DIR", "RAW_DIR", "BUILD_PYTHON", "PYTHONPATH", "ASKED_FOR"}
    of_image = {line.partition("=")[0] for line in engine.client.images.get(base).attrs["Config"]["Env"]}
    assert seen["environ"].keys() <= own | given | of_image


def test_compiles_are_planned_with_the_memory_it_may_take(seen: Mapping[str, Any]) -> None:
    limit = SHARE.memory_gib * 1024
    assert limit / 2 < seen["free MiB"] <= limit


def test_it_runs_as_the_caller(seen: Mapping[str, Any], done: tuple[Path, str]) -> None:
    assert seen["ids"] == [os.getuid(), os.getgid()]
    left = [path.stat() for path in (done[0] / "scratch/raw").iterdir()]
    assert {(state.st_uid, state.st_gid) for state in left} == {(os.getuid(), os.getgid())}


def test_its_files_belong_to_its_user(engine: Engine, base: str, tmp_path: Path, soon: float) -> None:
    wanted = make_command(tmp_path, "", soon)
    os.chown(tmp_path / "scratch", 1234, 1234)
    printed = run_in_container(replace(engine, user="1234:1234"), base, tmp_path, SHARE, wanted, lambda *_: None)
    state = Path(printed.strip()).stat()
    assert (state.st_uid, state.st_gid) == (1234, 1234)


def test_lines_and_progress_are_reported_while_it_runs(engine: Engine, base: str, tmp_path: Path, soon: float) -> None:
    """The build waits for a file that is made once its first line has arrived."""
    waits = (
        "import os, pathlib, time\nprint('[1/2] first', flush=True)\n"
        "while not pathlib.Path(os.environ['RAW_DIR'], 'go').exists(): time.sleep(0.05)\n"
        "print('[2/2] second')\n"
    )
    steps: list[tuple[int, int]] = []

    def part(done: int, total: int, _told: str = "") -> None:
        assert "[1/2] first" in (tmp_path / "cell.log").read_text()
        (tmp_path / "scratch/raw/go").touch()
        steps.append((done, total))

    run_in_container(engine, base, tmp_path, SHARE, make_command(tmp_path, waits, soon), part)
    assert steps == [(1, 2), (2, 2)]


def test_parallel_commands_do_not_interfere(engine: Engine, base: str, tmp_path: Path, soon: float) -> None:
    """As `run` does it: threads that share one engine; each build waits for the other to have begun."""
    meets = (
        "import os, pathlib, time\nmine, other = os.environ['MINE'], os.environ['OTHER']\n"
        "pathlib.Path(mine).touch()\nwhile not pathlib.Path(other).exists(): time.sleep(0.05)\nprint('met')\n"
    )
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    shared = tmp_path / "shared"
    shared.mkdir()
    printed: dict[str, str] = {}

    def run(name: str, other: str) -> None:
        wanted = make_command(tmp_path / name, meets, soon, MINE=f"{shared}/{name}", OTHER=f"{shared}/{other}")
        wanted = replace(wanted, writes=(*wanted.writes, shared))
        printed[name] = run_in_container(engine, base, tmp_path / name, SHARE, wanted, lambda *_: None)

    threads = [threading.Thread(target=run, args=names) for names in (("a", "b"), ("b", "a"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name in ("a", "b"):
        assert printed[name].startswith(str(tmp_path / name))
        assert "met" in (tmp_path / name / "cell.log").read_text().splitlines()
