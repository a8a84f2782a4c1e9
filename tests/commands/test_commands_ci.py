"""`wheelfactory ci jobs`, `collect`, `reconcile` and `plain` on a directory: step outputs and exit codes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from aiter_factory import PREVIEW
from command_line import Cli, CommandResult, run_command
from release_factory import flash_attn_wheel, make_release
from rocm_machine import NO_ENGINE
from small_matrix import edited, small_matrix
from wheelfactory.build.products import read_fallback_project
from wheelfactory.commands.ci import batch
from wheelfactory.core.cell import FALLBACK_NAME, OFFERED_PRODUCTS
from wheelfactory.core.errors import BAD_INPUT, BUILD_FAILED, DONE, FAILED, VERIFICATION_FAILED
from wheelfactory.kernels.kernel_set import group_kernel_sets, stored_set_name
from wheelfactory.kernels.source_list import SourceList, write_source_list
from wheelfactory.kernels.storage import DirectoryArchiveHost
from wheelfactory.matrix.expand import expand
from wheelfactory.pipeline.jobs import WorkflowJobs
from wheelfactory.release.directory import DirectoryPublisher
from wheelfactory.release.manifest import read_manifest
from wheelfactory.release.transaction import yank

TRITON = "fa2.8.3-rocm6.4-torch2.9.1-py3-triton"
CK = "fa2.8.3-rocm6.4-torch2.9.1-cp311-ck"
CK_HERE = "fa2.8.3-rocm7.2-torch2.13.0-cp312-ck"
SETS = {kernel_set.id: kernel_set for kernel_set in group_kernel_sets(small_matrix(), expand(small_matrix()).cells)}
CK_SETS = tuple(name for name, kernel_set in SETS.items() if CK in {cell.id for cell in kernel_set.cells})
DEVICE_SET, HOST_SET = CK_SETS
SOURCES = tuple(f"fmha_fwd_d64_fp16_x{number}" for number in range(8000))


class Outputs(CommandResult):
    """Result of a command that prints step outputs."""

    @property
    def outputs(self) -> dict[str, str]:
        """The step outputs by name."""
        return dict(line.split("=", 1) for line in self.out.splitlines())

    def entries(self, name: str) -> list[dict[str, Any]]:
        """The entries of a job matrix in an output."""
        found = json.loads(self.outputs[name])["include"]
        assert isinstance(found, list)
        return found


class Steps(NamedTuple):
    """The commands of one workflow run, on a release directory, and the files that they exchange."""

    run: Callable[..., Outputs]
    release: Path
    jobs: Path
    kernels: Path
    built: Path

    def collect(self, *arguments: str) -> Outputs:
        return self.run("collect", "--kernels", str(self.kernels), *arguments)

    def reconcile(self, *arguments: str) -> Outputs:
        return self.run("reconcile", *arguments)

    def publish(self, cell: str, replacement: int = 0) -> None:
        make_release(self.release, [flash_attn_wheel(self.built / cell, cell, replacement=replacement)])


@pytest.fixture
def steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Steps:
    """Run with the small matrix, whose release 2.8.3 has known sources."""
    matrix, cache = tmp_path / "matrix.yaml", tmp_path / "cache"
    matrix.write_text(edited(("https://github.com/Dao-AILab", "https://127.0.0.1:9")))
    write_source_list(SourceList(SOURCES, 10**8, ""), small_matrix().flash_attn["2.8.3"].source_pin, cache)
    release, jobs = tmp_path / "release", tmp_path / "jobs.json"
    release.mkdir()

    def run(command: str, *arguments: str) -> Outputs:
        more = ("--matrix", str(matrix), "--cache", str(cache)) if command == "jobs" else ()
        return Outputs(*run_command(capsys, "ci", command, str(release), "--jobs", str(jobs), *more, *arguments))

    return Steps(run, release, jobs, tmp_path / "kernels", tmp_path / "built")


SMALL_JOBS = ("jobs", "--only", "fa2.8.3-rocm6.4-*", "--runner", "large")


def test_jobs_prints_the_shards_to_compile_and_writes_the_jobs_file(steps: Steps) -> None:
    shown = steps.run(*SMALL_JOBS)
    assert (shown.code, shown.outputs["count"]) == (DONE, "2")
    shards = shown.entries("kernels")
    assert shown.outputs["kernel-count"] == str(len(shards))
    counts = Counter(entry["set"] for entry in shards)
    assert [*counts] == [*CK_SETS]
    assert counts[DEVICE_SET] > counts[HOST_SET], "the device code of 8,000 kernels takes many hours"
    jobs = WorkflowJobs.read(steps.jobs)
    assert [(cell.id, cell.kernel_sets) for cell in jobs.cells] == [(TRITON, ()), (CK, CK_SETS)]
    assert f"{DEVICE_SET}, " in shown.err and f"{HOST_SET}, " in shown.err
    collected = steps.collect()
    assert (collected.code, collected.outputs["count"], collected.outputs["kernels-pending"]) == (DONE, "1", "false")
    assert f"{DEVICE_SET}: failed\n" in collected.err, "nobody made its shards"
    assert "  hint: " in collected.err


def store(steps: Steps, name: str) -> None:
    """Put an archive of this kernel set on the archive host."""
    archive = steps.jobs.with_name(f"{name}-0123456789abcdef.tar.zst")
    archive.write_bytes(b"kernels")
    DirectoryArchiveHost(steps.release).upload(stored_set_name(small_matrix(), SETS[name]), archive)


def test_jobs_skips_published_cells_and_uploaded_kernel_sets(steps: Steps) -> None:
    steps.publish(TRITON)
    store(steps, DEVICE_SET)
    shown = steps.run(*SMALL_JOBS)
    assert shown.outputs["count"] == "1"
    assert {entry["set"] for entry in shown.entries("kernels")} == {HOST_SET}, "only the host code is missing"
    assert [item.stored for item in WorkflowJobs.read(steps.jobs).kernel_sets] == [True, False]
    store(steps, HOST_SET)
    shown = steps.run(*SMALL_JOBS)
    assert (shown.outputs["count"], shown.outputs["kernel-count"]) == ("1", "0")
    nothing = steps.run("jobs", "--only", TRITON)
    assert (nothing.code, nothing.outputs["count"], nothing.outputs["kernel-count"]) == (DONE, "0", "0")
    assert "nothing to build" in nothing.err


def yank_wheel(wheel: Path) -> None:
    yank(DirectoryPublisher(wheel.parent.parent), wheel.name, "wrong numbers")


@pytest.mark.parametrize("break_wheel", [yank_wheel, Path.unlink], ids=["yanked", "lost"])
def test_a_wheel_that_cannot_be_installed_is_a_gap_until_a_replacement_is_published(
    steps: Steps, break_wheel: Callable[[Path], None]
) -> None:
    for number in range(3):
        steps.publish(TRITON, number)
        assert steps.run("jobs", "--only", TRITON).outputs["count"] == "0"
        break_wheel(max((steps.release / "wheels").glob("flash_attn-*.whl")))
        assert steps.run("jobs", "--only", TRITON).outputs["count"] == "1"
        gap = steps.reconcile()
        assert (gap.code, f"missing  {TRITON}: not published" in gap.err) == (FAILED, True)
        assert steps.collect().entries("batches")[0]["cells"] == f"{TRITON}:{number + 1}"
    steps.publish(TRITON, 3)
    assert steps.reconcile().code == DONE
    names = [row.filename for row in read_manifest(steps.release)]
    assert [name.split("-")[2] for name in names] == ["1", "1a", "1b", "1c"]


def test_without_a_runner_ck_cells_are_left_out_and_named_by_every_step(steps: Steps) -> None:
    shown = steps.run("jobs", "--only", "fa2.8.3-rocm6.4-*", "--runner", "")
    assert (shown.code, shown.outputs["count"], shown.outputs["kernel-count"]) == (DONE, "1", "0")
    assert "not built here: needs a runner: 1 cell\nhint: set the repository variable WHEELFACTORY_RUNNER" in shown.err
    jobs = WorkflowJobs.read(steps.jobs)
    assert ([cell.id for cell in jobs.cells], jobs.unplanned) == ([TRITON], (CK,))
    assert steps.reconcile().code == FAILED, "the planned cell is missing"
    steps.publish(TRITON)
    green = steps.reconcile()
    assert (green.code, f"| `{CK}` | not built here: needs a runner |" in green.out) == (DONE, True)
    assert "WHEELFACTORY_RUNNER" in green.out


def test_a_set_whose_sources_cannot_be_listed_costs_its_own_cells(steps: Steps) -> None:
    """The repository of 2.6.3 cannot be reached."""
    shown = steps.run("jobs", "--runner", "large")
    assert shown.code == DONE
    assert {entry["set"].partition("-")[0] for entry in shown.entries("kernels")} == {"fa2.8.3"}
    assert "cannot plan fa2.6.3-" in shown.err
    collected = steps.collect()
    built = [cell for batch in collected.entries("batches") for cell in batch["cells"].split()]
    assert (collected.code, collected.outputs["kernels-pending"]) == (DONE, "false")
    assert TRITON in built
    assert not [cell for cell in built if cell.startswith("fa2.6.3-")]
    assert "kernel set not planned" in collected.err
    assert steps.reconcile().code == FAILED


def test_jobs_of_four_versions_compile_in_the_jobs_of_their_cells(steps: Steps) -> None:
    versions = ("--runner", "large", "--versions", "2.8.3", "3.11", "2.9.1", "6.4")
    one = steps.run("jobs", *versions)
    assert [(batch["cells"], batch["kernel-sets"]) for batch in one.entries("batches")] == [
        (CK, ""),
        *((name, "") for name in OFFERED_PRODUCTS),
    ]
    assert "kernels" not in one.outputs
    store(steps, DEVICE_SET)
    ck, *_ = steps.run("jobs", *versions).entries("batches")
    assert ck["kernel-sets"] == "", "a build refuses archives that lack the host code"
    store(steps, HOST_SET)
    ck, *_ = steps.run("jobs", *versions).entries("batches")
    assert ck["kernel-sets"].split() == sorted(CK_SETS)
    both = steps.run("jobs", *versions, "--with-triton", "true")
    assert [batch["cells"] for batch in both.entries("batches")] == [CK, TRITON, *OFFERED_PRODUCTS]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("jobs", "--versions", "2.8.3", "3.12", "2.9.1", "6.4"), "the compiler of this image stops"),
        (("jobs", "--versions", "2.8.3", "3.11", "2.9.1", "6.4"), f"needs a runner: {CK}"),
        (("jobs", "--commit", "5ca1ab1"), "not the commit of this run: 5ca1ab1, the run is one of none"),
        (("jobs", "--only", TRITON, "--with-triton", "true"), "--with-triton without --versions"),
        (("collect", "--kernels", "kernels"), "cannot read the jobs file"),
        (("collect", "--kernels", "kernels", "--round", "9"), "--round"),
        (("reconcile",), "cannot read the jobs file"),
    ],
)
def test_bad_input_prints_no_output(steps: Steps, arguments: tuple[str, ...], error: str) -> None:
    shown = steps.run(*arguments)
    assert (shown.code, shown.out) == (BAD_INPUT, "")
    assert error in shown.err


def test_collect_prints_the_cells_to_build_unless_they_were_published_meanwhile(steps: Steps) -> None:
    steps.run("jobs", "--only", TRITON)
    shown = steps.collect("--round", "3")
    assert {name: shown.outputs[name] for name in ("count", "kernels-pending", "next-round")} == {
        "count": "1",
        "kernels-pending": "false",
        "next-round": "4",
    }
    assert shown.entries("batches") == [
        {"batch": "triton-2.8.3-1", "cells": TRITON, "kernel-sets": ""},
        *({"batch": name, "cells": name, "kernel-sets": ""} for name in OFFERED_PRODUCTS),
    ]
    steps.publish(TRITON)
    assert steps.collect().outputs["count"] == "0"


def test_reconcile_fails_until_every_selected_cell_is_published(steps: Steps) -> None:
    steps.run("jobs", "--only", TRITON)
    lost = steps.reconcile()
    assert (lost.code, TRITON in lost.out) == (FAILED, True)
    assert "not published" in lost.err
    assert steps.reconcile("--kernels-pending", "true").code == DONE
    steps.publish(TRITON)
    assert steps.reconcile("--results", "select=success release=cancelled").code == FAILED
    shown = steps.reconcile()
    assert (shown.code, TRITON in shown.out) == (DONE, True)
    (row,) = read_manifest(steps.release)
    yank(DirectoryPublisher(steps.release), row.filename, "wrong numbers")
    assert steps.reconcile().code == FAILED, "nobody can install a yanked wheel"


def put(folder: Path, name: str, content: str) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(content)


WHEEL, ROW, PROOF = "flash_attn-2.8.3-py3-none-any.whl", f"{TRITON}/manifest.jsonl", "proofs/0.json"
MADE = {WHEEL: "wheel", ROW: "row", PROOF: "failed"}
FORGERIES = {
    "a swapped wheel": {**MADE, WHEEL: "another wheel"},
    "evidence": {**MADE, "evidence.json": "MI300X"},
    "a missing row": {WHEEL: "wheel", PROOF: "failed"},
    "a row in another folder": {WHEEL: "wheel", f"{CK}/manifest.jsonl": "row", PROOF: "failed"},
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_an_artifact_that_another_job_replaced_is_refused(cli: Cli, tmp_path: Path, forgery: str) -> None:
    made, forged = tmp_path / "made", tmp_path / "forged"
    for folder, files in ((made, MADE), (forged, FORGERIES[forgery])):
        for name, content in files.items():
            put(folder, name, content)
    more = ("--artifact", "rows-ck-1", cli("ci", "digest", made).out.strip().removeprefix("sha256="))
    put(made, ".scratch", "hidden files are in no artifact")
    assert cli("ci", "digest", made, *more) == (DONE, "", "")
    shown = cli("ci", "digest", forged, *more)
    assert shown.code == VERIFICATION_FAILED
    assert "not the artifact that its job made: artifact rows-ck-1 has" in shown.err


def test_a_digest_of_nothing_is_empty_and_never_equal(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A job that made nothing sets no digest; no artifact must pass for its artifact."""
    for folder in (tmp_path, tmp_path / "missing"):
        assert run_command(capsys, "ci", "digest", folder).out == "sha256=\n"
        for expected in ([""], []):
            assert run_command(capsys, "ci", "digest", folder, "--artifact", "rows-a", *expected).code == BAD_INPUT


def test_the_plain_build_of_aiter_is_made_for_the_cells_that_require_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    monkeypatch.setattr(batch, "make_plain_wheel", lambda pin, _cache: made.append(f"{pin.name} {pin.version}"))
    for cells in (TRITON, f"{PREVIEW.id} amd-aiter"):
        shown = run_command(capsys, "ci", "baseline", cells, "--cache", str(tmp_path))
        assert shown.code == DONE, shown.err
    offered = [f"{name} {read_fallback_project(name).version}" for name in OFFERED_PRODUCTS]
    preview = f"flash-attn {PREVIEW.flash_attn}"
    assert made == [*offered, "flash-attn 2.8.3", *offered, "amd-aiter 0.0.20260602.post1", preview]


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (("batch", "verify", TRITON, "--wheels", "dist"), BAD_INPUT, "--rows belongs to verify, --kernels to build"),
        (("batch", "prove", TRITON, "--wheels", "dist", "--kernels", "kernels"), BAD_INPUT, "--kernels to build"),
        (("batch", "build", "fa2.8.3", "--wheels", "dist"), BAD_INPUT, "not a cell id"),
        (("kernels", ".", "fa2.8.3-rocm9.9"), BAD_INPUT, "fa2.8.3-rocm9.9"),
        # no container keeps the code of a wheel from rows and proofs here
        (("batch", "prove", TRITON, "--wheels", "dist"), BUILD_FAILED, "error: no container engine answers: "),
        (
            ("batch", "verify", TRITON, "--rows", "rows", "--wheels", "dist"),
            BUILD_FAILED,
            "no container engine answers",
        ),
    ],
)
def test_a_batch_that_cannot_run_is_refused(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], code: int, error: str
) -> None:
    monkeypatch.setenv("DOCKER_HOST", NO_ENGINE)
    shown = cli("ci", *arguments, *(["--cache", "cache"] if code == BUILD_FAILED else []))
    assert (shown.code, shown.out) == (code, "")
    assert error in shown.err
    assert [path.name for path in Path().iterdir() if path.name != "cache"] == []


@pytest.mark.slow
def test_a_batch_prints_whether_any_cell_passed_and_fails_if_one_did_not(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Nobody here can build a CK cell without ROCm, so that it fails, and flash-attention-amd is built."""
    more = ("--wheels", str(tmp_path / "dist"), "--executor", "local")
    shown = Outputs(*run_command(capsys, "ci", "batch", "build", f"{CK_HERE} {FALLBACK_NAME}", *more))
    assert (shown.code, shown.outputs) == (FAILED, {"passed": "true"})
    assert f"error: {CK_HERE}: " in shown.err and "hint: " in shown.err
    assert [path.name.partition("-")[0] for path in (tmp_path / "dist").iterdir()] == ["flash_attention_amd"]
    again = Outputs(*run_command(capsys, "ci", "batch", "build", CK_HERE, *more))
    assert (again.code, again.outputs) == (FAILED, {"passed": "false"})
