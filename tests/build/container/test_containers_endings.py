"""Builds in a container that fail: the error, and that nothing is left behind."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from container_engine import KIND
from container_project import containers_of, make_command, wait_until
from wheelfactory.build.container import ResourceShare, run_in_container
from wheelfactory.build.engine import Engine, run_folder
from wheelfactory.commands.options import find_hint
from wheelfactory.core.errors import BuildError, FactoryError, RunAgainError

pytestmark = pytest.mark.slow

SHARE = ResourceShare(cores=2, memory_gib=0.25)

SLEEPS = "import time\nprint('[1/9] asleep', flush=True)\ntime.sleep(100)\n"

TAKES_MEMORY = "taken = [bytearray(1 << 24) for _ in range(64)]\n"  # 1 GiB

CHILD_TAKES_MEMORY = f"""\
import subprocess, sys
if subprocess.run([sys.executable, '-c', {TAKES_MEMORY!r}]).returncode:
    raise SystemExit('ninja: build stopped: subcommand failed.')
"""

tells_want_of_memory = pytest.mark.skipif(
    KIND == "podman", reason="podman 4 says of such a container only that it ended"
)

COMPILE_FAILS = """\
import sys
for number in range(30):
    print('line', number, file=sys.stderr)
raise SystemExit("error: invalid target ID 'gfx9999'; format is a processor name")
"""


Ended = Callable[..., FactoryError]


@pytest.fixture
def run(engine: Engine, tmp_path: Path) -> Iterator[Path]:
    """The folder of a run, of which nothing may be left afterwards: no container, no volume, no file."""
    cache = tmp_path / "cache"
    volumes = {volume.id for volume in engine.client.volumes.list()}
    with run_folder(engine, cache) as folder:
        yield folder
        wait_until(lambda: not containers_of(engine, folder))
    assert {volume.id for volume in engine.client.volumes.list()} == volumes
    assert list(cache.iterdir()) == []


@pytest.fixture
def ended(engine: Engine, base: str, run: Path, tmp_path: Path, soon: float) -> Ended:
    """Runs a command that fails, and returns the error; `meanwhile` is called after its first progress line."""

    def fail(does: str, meanwhile: Callable[[], object] = lambda: None, deadline: float = soon) -> FactoryError:
        def part(*_: object) -> None:
            meanwhile()

        with pytest.raises(FactoryError) as failed:
            run_in_container(engine, base, run, SHARE, make_command(tmp_path, does, deadline), part)
        assert isinstance(failed.value, (BuildError, RunAgainError))
        return failed.value

    return fail


def test_a_failed_build_shows_its_last_lines_and_the_path_of_its_log(ended: Ended, tmp_path: Path) -> None:
    error = ended(COMPILE_FAILS)
    assert error.what == "build failed"
    assert "build_rocm.sh in rocm/pytorch:stand-in (exit status 1)" in error.which
    assert "line 29" in error.which and "invalid target ID 'gfx9999'" in error.which
    assert "line 3\n" not in error.which
    assert str(tmp_path / "cell.log") in find_hint(error)
    assert "line 3\n" in (tmp_path / "cell.log").read_text()


def test_a_known_failure_has_its_remedy(ended: Ended) -> None:
    error = ended("raise SystemExit('c++: fatal error: Killed signal terminated program cc1plus')\n")
    assert find_hint(error).startswith("out of memory")
    assert "start fewer compiles at once" in find_hint(error)


@tells_want_of_memory
def test_a_build_over_its_memory_limit_is_reported_as_out_of_memory(ended: Ended) -> None:
    error = ended(TAKES_MEMORY)
    assert "killed for lack of memory" in error.which
    assert error.hint.startswith("out of memory: the container had 0.2 GiB; give it more (--memory)")


@tells_want_of_memory
def test_a_compiler_killed_for_memory_is_reported_as_out_of_memory(ended: Ended) -> None:
    error = ended(CHILD_TAKES_MEMORY)
    assert "(exit status 1; a process was killed for lack of memory)" in error.which
    assert find_hint(error).startswith("out of memory: the container had 0.2 GiB")


def test_a_compile_error_after_a_kill_is_reported_by_its_own_cause(ended: Ended) -> None:
    """A compile that was killed for lack of memory is tried again, so that alone does not end a build."""
    killed = CHILD_TAKES_MEMORY.partition("if ")[0] + f"subprocess.run([sys.executable, '-c', {TAKES_MEMORY!r}])\n"
    error = ended(killed + COMPILE_FAILS)
    assert "(exit status 1" in error.which
    assert find_hint(error).startswith("arch refused (")


def test_a_container_killed_from_outside_is_not_out_of_memory(ended: Ended, engine: Engine, run: Path) -> None:
    error = ended(SLEEPS, lambda: engine.client.api.kill(containers_of(engine, run)[0]))
    assert "(exit status 137, killed from outside)" in error.which
    assert error.hint.startswith("someone killed the container, or this machine ran out of memory")


def test_a_removed_container_is_reported_as_such(ended: Ended, engine: Engine, run: Path) -> None:
    error = ended(SLEEPS, lambda: engine.client.api.remove_container(containers_of(engine, run)[0], force=True))
    # an engine that is slow to forget it says how it ended
    assert re.match("someone (removed it|killed the container)", error.hint)


def test_a_container_is_killed_at_the_deadline(ended: Ended) -> None:
    begun = time.time()
    error = ended(SLEEPS, deadline=begun + 4)
    assert isinstance(error, RunAgainError)
    assert "run the same command again" in error.hint
    assert 4 <= time.time() - begun < 90  # it would take 100


def test_a_missing_image_is_reported_as_such(engine: Engine, tmp_path: Path, soon: float) -> None:
    with pytest.raises(BuildError, match="no such image"):
        run_in_container(
            engine, "wheelfactory/build:none", tmp_path, SHARE, make_command(tmp_path, "", soon), lambda *_: None
        )


def test_an_interrupt_removes_the_container(engine: Engine, base: str, tmp_path: Path, soon: float) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_in_container(engine, base, tmp_path, SHARE, make_command(tmp_path, SLEEPS, soon), interrupt)
    assert containers_of(engine, tmp_path) == []
