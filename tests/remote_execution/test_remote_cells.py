"""The commands `kernels`, `build` and `run` with a server of the Remote Execution API, and a release in small."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from remote_server import remote_server
from rocm_machine import make_machine
from small_release import SMALL_SET, make_small_release
from wheelfactory.kernels.archive import read_archive_manifest

pytestmark = pytest.mark.slow

CELL = f"fa2.8.3-rocm7.2-torch2.13.0-cp3{sys.version_info[1]}-ck"


def test_the_command_has_a_set_and_then_a_cell_compiled_elsewhere_and_verifies_a_sample(
    cache: Path, small_rocm: Mapping[str, str], tmp_path: Path
) -> None:
    machine = make_machine(tmp_path / "machine", cache, small_rocm)
    for shared in ("sources", "source-lists"):
        (machine.cache / shared).unlink()  # the small release must not get into the shared cache
    matrix = make_small_release(machine.cache, tmp_path)
    machine.compiled()
    with remote_server() as server:
        options = ("--dest", tmp_path / "out", "--matrix", matrix, "--executor", "local", "--verify-sample", "1")
        done = machine.run("kernels", SMALL_SET, *options, WHEELFACTORY_REMOTE=server.url)
        assert done.returncode == 0, done.stderr
        assert "1 of 1 sampled kernels compiled here, too: same bytes" in done.stderr
        (archive,) = map(Path, done.stdout.splitlines())
        made_by = [entry.made_by for entry in read_archive_manifest(archive).objects.values()]
        assert sorted(made_by) == ["", *["worker1"] * (len(made_by) - 1)]
        machine.compiled()
        server.executed.clear()
        done = machine.run("build", CELL, *options[:-2], "--remote", server.url)
        assert done.returncode == 0, done.stderr
        # the worker and this machine have one hipcc, so its log has the compiles of both
        compiled = machine.compiled()
        assert compiled.count("flash_api") == 1
        assert len(compiled) - 1 == len(server.executed) == len({*compiled}) - 1
        results = len(server.results)
        server.executed.clear()
        shutil.rmtree(machine.cache / "kernels")
        # what it publishes is executed anew, whatever results the server has; the small release fails verification
        machine.run(
            "run", "--only", CELL, "--quick", *options[2:-2], "--dest", tmp_path / "wheels", "--remote", server.url
        )
        assert len(server.executed) == len(server.results) == results
