"""`wheelfactory run` on real sources: build, verify, publish and index; repeated, from scratch, and after kills.

Uses ``--quick``, which skips the slow gate; one test has its proofs.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path

import pytest

from rocm_machine import make_machine
from wheelfactory.build.environments import make_build_environment, make_triton_environment
from wheelfactory.core.cell import Backend
from wheelfactory.core.files import file_sha256
from wheelfactory.matrix.load import load_matrix
from wheelfactory.release.manifest import WheelRow, read_manifest
from wheelfactory.verify.gates import required_gates

Done = subprocess.CompletedProcess[str]

TRITON = "fa2.8.3-*-torch2.13.0-py3-triton"
"""Two cells, for ROCm 7.1 and 7.2, of one payload."""

pytestmark = pytest.mark.slow


@pytest.fixture
def scratch_cache(cache: Path, tmp_path: Path) -> Path:
    """A cache with only environments and proofs, so that every wheel is built again."""
    folder = tmp_path / "cache"
    folder.mkdir()
    for kept in (*cache.glob("env-*"), *(cache / name for name in ("proofs", "plain", "sources"))):
        kept.mkdir(exist_ok=True)
        (folder / kept.name).symlink_to(kept)
    return folder


def command(dest: Path, cache: Path, matrix: Path, only: str = TRITON) -> list[str | Path]:
    places = ("--dest", dest, "--cache", cache, "--matrix", matrix)
    return [sys.executable, "-m", "wheelfactory", "run", "--only", only, *places]


def run(
    dest: Path,
    cache: Path,
    matrix: Path,
    *more: str,
    only: str = TRITON,
    environ: Mapping[str, str] | None = None,
) -> Done:
    return subprocess.run([*command(dest, cache, matrix, only), *more], env=environ, capture_output=True, text=True)


def snapshot(folder: Path) -> dict[str, tuple[str, int]]:
    """Return the digest and modification time of every file in a folder."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): (file_sha256(path), path.stat().st_mtime_ns) for path in files}


def without_times(folder: Path) -> list[WheelRow]:
    """Return the manifest rows without their publication times."""
    epoch = "1970-01-01T00:00:00Z"
    return [WheelRow.model_validate({**row.model_dump(), "published": epoch}) for row in read_manifest(folder)]


def content(folder: Path) -> dict[str, str]:
    """Return the digest of every file in a release except the manifest, which has times."""
    return {name: digest for name, (digest, _) in snapshot(folder).items() if name != "manifest.jsonl"}


@pytest.fixture(scope="module")
def built(cache: Path, few_archs: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done]:
    """A release of both cells, and the command that made it."""
    folder = tmp_path_factory.mktemp("release")
    done = run(folder, cache, few_archs, "--quick")
    assert done.returncode == 0, done.stderr
    return folder, done


@pytest.fixture(scope="module")
def release(built: tuple[Path, Done]) -> Path:
    return built[0]


def test_the_selected_cells_passed_every_gate_except_the_skipped_ones(release: Path) -> None:
    rows = [row for row in read_manifest(release) if row.cell]
    assert [row.cell for row in rows] == [
        "fa2.8.3-rocm7.1-torch2.13.0-py3-triton",
        "fa2.8.3-rocm7.2-torch2.13.0-py3-triton",
    ]
    results = {(gate.gate, gate.status.value) for row in rows for gate in row.gates if gate.required}
    names = ("archive", "identity", "record", "contents", "import")
    assert results == {(name, "passed") for name in names}
    left_out = {gate.gate for row in rows for gate in row.gates if gate.detail == "skipped by --quick"}
    assert left_out == {"emulation"}


def test_a_run_without_quick_runs_the_skipped_gates_and_changes_nothing_else(
    built: tuple[Path, Done], proved: Path, few_archs: Path, tmp_path: Path
) -> None:
    """With the proofs of these gates, which test_verify_emulation.py makes."""
    release, quick = built
    own, folder = make_machine(tmp_path / "machine", proved, {}).cache, tmp_path / "release"
    shutil.copytree(release, folder)
    assert "2 wheels not checked: numbers; rerun without --quick" in quick.stdout
    assert "verified" not in quick.stdout
    assert "not checked: numbers" in (folder / "packages.md").read_text()
    before = {row.filename: row for row in read_manifest(folder)}
    wheels = snapshot(folder / "wheels")

    done = run(folder, own, few_archs)

    assert done.returncode == 0, done.stderr
    assert "not checked" not in done.stdout + (folder / "packages.md").read_text()
    assert snapshot(folder / "wheels") == wheels
    after = {row.filename: row for row in read_manifest(folder)}
    changed = [row for name, row in after.items() if row != before[name]]
    assert [row.cell for row in changed] == [row.cell for row in after.values() if row.cell]
    for row in changed:
        assert row == before[row.filename].model_copy(update={"gates": row.gates})
        assert {gate.gate for gate in row.gates if str(gate.status) == "passed"} == set(required_gates(Backend.TRITON))
        figures = {gate.gate: gate.figures for gate in row.gates}
        assert figures["emulation"]["gfx1201 attn_fwd vector registers"] > 100
    nothing = run(folder, own, few_archs)
    assert (nothing.returncode, read_manifest(folder)) == (5, tuple(after.values()))


def test_the_fallback_is_published_with_the_first_cells(release: Path) -> None:
    (row,) = (row for row in read_manifest(release) if row.project == "flash-attention-amd")
    assert (row.filename, row.cell, row.label) == (f"flash_attention_amd-{row.version}-py3-none-any.whl", None, None)
    passed = [gate.gate for gate in row.gates if gate.status.value == "passed"]
    assert passed == ["archive", "identity", "record", "contents", "import", "numbers"]
    assert f"{row.sha256}  wheels/{row.filename}\n" in (release / "SHA256SUMS").read_text()


@pytest.mark.parametrize(("tool", "index"), [("pip", "rocm71/torch2.13/triton"), ("uv pip", "rocm72/torch2.13/triton")])
def test_pip_and_uv_install_the_fallback_from_every_index(release: Path, tmp_path: Path, index: str, tool: str) -> None:
    site = ["--index-url", f"{release.as_uri()}/simple/{index}/", "--no-deps", "--target", str(tmp_path / "installed")]
    command = [sys.executable, "-m", *tool.split(), "install", "--quiet", *site, "flash-attention-amd"]
    subprocess.run(command, check=True)
    assert (tmp_path / "installed/flash_attention_amd/__init__.py").is_file()


@pytest.fixture(scope="module")
def again(release: Path, cache: Path, few_archs: Path) -> Done:
    """A second run, which changes no byte."""
    before = snapshot(release)
    done = run(release, cache, few_archs, "--quick")
    assert snapshot(release) == before
    return done


def test_builds_from_scratch_give_the_same_bytes_though_killed_at_any_moment_and_whatever_pythonpath_has(
    release: Path, scratch_cache: Path, few_archs: Path, tmp_path: Path
) -> None:
    """Each run continues where the killed one stopped.

    Another setuptools on PYTHONPATH once wrote its name into the wheel and the cache.
    """
    folder, other = tmp_path / "killed", tmp_path / "other"
    (other / "setuptools").mkdir(parents=True)
    (other / "setuptools/__init__.py").write_text("raise SystemExit('the wrong setuptools')\n")
    environ = {**os.environ, "PYTHONPATH": str(other)}
    for seconds in (0.5, 3.0):
        process = subprocess.Popen(
            [*command(folder, scratch_cache, few_archs), "--quick"],
            env=environ,
            start_new_session=True,
            stderr=subprocess.PIPE,
        )
        time.sleep(seconds)
        process.kill()
        process.communicate()
        kill_orphans(process.pid)
    done = run(folder, scratch_cache, few_archs, "--quick", environ=environ)
    assert done.returncode in (0, 5), done.stderr
    assert content(folder) == content(release)
    assert without_times(folder) == without_times(release)
    assert not list(folder.rglob(".scratch-*"))


def kill_orphans(group: int) -> None:
    """Kill the child processes of a killed run, a moment after it."""
    time.sleep(0.2)
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


def test_a_second_run_has_nothing_to_build_and_names_search_page_doctor_and_installs(
    release: Path, again: Done
) -> None:
    assert again.returncode == 5
    assert "nothing to build: 2 selected cells already published" in again.stderr
    for rocm in ("rocm71", "rocm72"):
        install = f"  pip install --index-url file://{release}/simple/{rocm}/torch2.13/triton/ flash-attn"
        assert install in again.stdout.splitlines()
    assert f"search page: {release}/index.html, doctor: {release}/doctor.py" in again.stdout.splitlines()
    data = (release / "search/data.js").read_text()
    digests = (b64encode(bytes.fromhex(row.sha256)).decode().rstrip("=") for row in read_manifest(release) if row.cell)
    assert all(digest in data for digest in digests)
    assert (release / "doctor.py").is_file()


def test_ck_cells_without_rocm_are_refused(cache: Path, few_archs: Path, tmp_path: Path) -> None:
    done = run(tmp_path / "ck", cache, few_archs, "--quick", only="fa2.8.3-rocm7.2-torch2.13.0-*-ck")
    assert done.returncode == 4
    assert "cannot be built here: CK kernels need hipcc and this machine has no ROCm" in done.stderr
    assert "hint: start Docker or podman, or build on a machine with ROCm" in done.stderr


def test_a_ck_cell_is_published_on_a_machine_with_rocm(kernel_archives: Path) -> None:
    """With the fake hipcc of `rocm_machine`; PYTORCH_ROCM_ARCH must not limit a wheel for other machines."""
    folder = kernel_archives.parent / "release"
    row = next(row for row in read_manifest(folder) if row.cell)
    assert row.offload_archs == ("gfx90a", "gfx942", "gfx950")
    assert row.cxx11_abi is True
    required = {gate.gate: str(gate.status) for gate in row.gates if gate.required}
    assert len(required) == 8
    assert set(required.values()) == {"passed"}
    (objects,) = (gate.figures for gate in row.gates if gate.gate == "code-objects")
    assert objects["bundles"] == 2202
    assert (folder / "simple/rocm72/torch2.13/ck/flash-attn/index.html").is_file()


def test_the_printed_command_installs_a_wheel_that_imports(
    again: Done, cache: Path, few_archs: Path, tmp_path: Path
) -> None:
    """Beside the torch and the Triton that it names, which are there: installing these takes a minute."""
    line = next(line for line in again.stdout.splitlines() if "torch==" in line).split()
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv/bin/python"
    (packages,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    triton = make_triton_environment(cache, load_matrix(few_archs).torch["2.13.0"].triton)
    there = (make_build_environment(cache), triton)
    (packages / "there.pth").write_text("".join(f"{made.site_packages}\n" for made in there))
    subprocess.run([python, "-m", *line, "--quiet"], check=True)
    code = "import flash_attn, importlib.metadata as m; print(m.version('flash-attn'))"
    assert "FLASH_ATTENTION_TRITON_AMD_ENABLE" not in os.environ
    shown = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "2.8.3+rocm72torch2.13triton"
