"""`ci jobs`, `ci collect` and `ci reconcile` on a directory: the lines that workflows hand on, and the exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from command_line import Shown, run_command
from release_factory import flash_attn_wheel, make_release
from small_matrix import edited, small_matrix
from wheel_factory import keep_plain, make_wheel
from wheelfactory.build.fallback import read_fallback_project
from wheelfactory.build.plain import PlainBuilds
from wheelfactory.core.errors import BAD_INPUT, DONE, FAILED, VERIFICATION_REFUSED
from wheelfactory.kernels.archive_host import DirectoryArchiveHost
from wheelfactory.kernels.kernel_set import group_kernel_sets, stored_set_name
from wheelfactory.kernels.source_list import SourceList, write_source_list
from wheelfactory.matrix.expand import expand
from wheelfactory.pipeline.jobs import WorkflowJobs
from wheelfactory.release.directory import DirectoryPublisher
from wheelfactory.release.manifest import read_manifest
from wheelfactory.release.transaction import yank

TRITON = "fa2.8.3-rocm6.4-torch2.9.1-py3-triton"
CK = "fa2.8.3-rocm6.4-torch2.9.1-cp311-ck"
SETS = {kernel_set.id: kernel_set for kernel_set in group_kernel_sets(small_matrix(), expand(small_matrix()).cells)}
CK_SET = next(name for name, kernel_set in SETS.items() if CK in {cell.id for cell in kernel_set.cells})
SOURCES = tuple(f"fmha_fwd_d64_fp16_x{number}" for number in range(4000))


class Outputs(Shown):
    """What came of a command that gives outputs to a workflow."""

    @property
    def outputs(self) -> dict[str, str]:
        """What a step that runs it gives to later ones."""
        return dict(line.split("=", 1) for line in self.out.splitlines())

    def entries(self, name: str) -> list[dict[str, Any]]:
        """What a job is expanded to whose matrix is this output."""
        found = json.loads(self.outputs[name])["include"]
        assert isinstance(found, list)
        return found


class Desk(NamedTuple):
    """Commands on a directory, and the files that they hand on."""

    run: Callable[..., Outputs]
    release: Path
    plan: Path
    kernels: Path
    built: Path


@pytest.fixture
def desk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Desk:
    """The small matrix, whose release 2.8.3 has known sources."""
    matrix, cache = tmp_path / "matrix.yaml", tmp_path / "cache"
    matrix.write_text(edited())
    write_source_list(SourceList(SOURCES, 10**8), small_matrix().flash_attn["2.8.3"].source_pin, cache)
    release, plan = tmp_path / "release", tmp_path / "plan.json"

    def run(command: str, *arguments: str) -> Outputs:
        more = ("--matrix", str(matrix), "--cache", str(cache)) if command == "jobs" else ()
        return Outputs(*run_command(capsys, "ci", command, str(release), "--plan", str(plan), *more, *arguments))

    return Desk(run, release, plan, tmp_path / "kernels", tmp_path / "built")


def gather(desk: Desk, *arguments: str) -> Outputs:
    return desk.run("gather", "--kernels", str(desk.kernels), *arguments)


def account(desk: Desk, *arguments: str) -> Outputs:
    return desk.run("account", "--built", str(desk.built), *arguments)


def publish(desk: Desk, *cells: str) -> None:
    make_release(desk.release, [flash_attn_wheel(desk.built / cell, cell) for cell in cells])


def build(desk: Desk, cell: str) -> None:
    make_release(desk.built / f"rows-{cell}", [flash_attn_wheel(desk.built / cell, cell)])


def test_jobs_says_what_to_compile_and_writes_the_plan(desk: Desk) -> None:
    shown = desk.run("jobs", "--only", "fa2.8.3-rocm6.4-*")
    assert (shown.code, shown.outputs["count"]) == (DONE, "2")
    shards = shown.entries("kernels")
    assert {entry["set"] for entry in shards} == {CK_SET}
    assert shown.outputs["kernel-count"] == str(len(shards))
    assert len(shards) > 1, "4,000 kernels are more than four hours of four cores"
    plan = WorkflowJobs.read(desk.plan)
    assert [(cell.id, cell.kernel_set) for cell in plan.cells] == [(TRITON, ""), (CK, CK_SET)]
    assert f"{CK_SET}, " in shown.err


def test_jobs_leaves_out_what_is_published_and_says_when_nothing_is_left(desk: Desk) -> None:
    publish(desk, TRITON)
    assert desk.run("jobs", "--only", "fa2.8.3-rocm6.4-*").outputs["count"] == "1"
    shown = desk.run("jobs", "--only", TRITON)
    assert (shown.code, shown.outputs["count"], shown.outputs["kernel-count"]) == (DONE, "0", "0")
    assert "nothing to build" in shown.err


def test_jobs_compiles_no_set_that_is_on_the_shelf(desk: Desk) -> None:
    archive = desk.plan.with_name(f"{CK_SET}-0123456789abcdef.tar.zst")
    archive.write_bytes(b"kernels")
    DirectoryArchiveHost(desk.release).upload(stored_set_name(small_matrix(), SETS[CK_SET]), archive)
    shown = desk.run("jobs", "--only", CK)
    assert shown.outputs["kernel-count"] == "0"
    assert WorkflowJobs.read(desk.plan).kernel_sets[0].stored


def test_jobs_of_four_versions_gives_their_cells_and_compiles_in_their_own_jobs(desk: Desk) -> None:
    versions = ("--versions", "2.8.3", "3.11", "2.9.1", "6.4")
    one = desk.run("jobs", *versions)
    assert one.entries("cells") == [{"id": CK, "group": "0", "kernel-set": ""}]
    assert "kernels" not in one.outputs
    both = desk.run("jobs", *versions, "--triton-too", "true")
    assert [entry["id"] for entry in both.entries("cells")] == [CK, TRITON]
    assert both.entries("groups") == [{"group": "0", "cells": f"{CK} {TRITON}"}]


def test_jobs_of_versions_that_cannot_work_is_refused_with_the_reason(desk: Desk) -> None:
    shown = desk.run("jobs", "--versions", "2.8.3", "3.12", "2.9.1", "6.4")
    assert (shown.code, shown.out) == (BAD_INPUT, "")
    assert "the compiler of this image stops" in shown.err


def test_gather_gives_triton_cells_when_there_was_nothing_to_compile(desk: Desk) -> None:
    desk.run("jobs", "--only", TRITON)
    shown = gather(desk)
    assert (shown.outputs["count"], shown.outputs["later"]) == ("1", "false")
    (shard,) = shown.entries("shards")
    assert json.loads(shard["cells"]) == {"include": [{"id": TRITON, "group": "0", "kernel-set": ""}]}
    assert shown.entries("groups") == [{"group": "0", "cells": TRITON}]


def test_gather_leaves_out_what_was_published_since_the_plan(desk: Desk) -> None:
    desk.run("jobs", "--only", TRITON)
    publish(desk, TRITON)
    assert gather(desk).outputs["count"] == "0"


def test_gather_leaves_out_the_cells_of_a_set_that_nobody_compiled_and_says_so(desk: Desk) -> None:
    desk.run("jobs", "--only", "fa2.8.3-rocm6.4-*")
    shown = gather(desk)
    assert (shown.code, shown.outputs["count"], shown.outputs["later"]) == (DONE, "1", "false")
    assert f"{CK_SET}: failed" in shown.err
    assert "no shards to merge" in shown.err


def test_gather_counts_rounds_and_takes_no_number_beyond_the_last(desk: Desk) -> None:
    desk.run("jobs", "--only", TRITON)
    assert gather(desk, "--round", "3").outputs["next-round"] == "4"
    assert gather(desk, "--round", "9").code == BAD_INPUT


def test_account_is_content_when_all_that_was_planned_is_published(desk: Desk) -> None:
    desk.run("jobs", "--only", TRITON)
    build(desk, TRITON)
    publish(desk, TRITON)
    shown = account(desk)
    assert shown.code == DONE
    assert TRITON in shown.out


@pytest.mark.parametrize(
    ("was_built", "told"), [(False, "no verified wheel reached the upload"), (True, "is not published")]
)
def test_account_names_a_cell_that_is_missing_and_where_it_was_lost(desk: Desk, was_built: bool, told: str) -> None:
    desk.run("jobs", "--only", TRITON)
    if was_built:
        build(desk, TRITON)
    shown = account(desk)
    assert shown.code == FAILED
    assert TRITON in shown.out
    assert told in shown.err


def test_account_waits_for_cells_whose_kernels_are_compiled_in_a_later_run(desk: Desk) -> None:
    desk.run("jobs", "--only", TRITON)
    assert account(desk, "--later", "true").code == DONE
    assert account(desk, "--later", "false").code == FAILED


def test_account_of_nothing_says_that_there_was_nothing(desk: Desk) -> None:
    publish(desk, TRITON)
    desk.run("jobs", "--only", TRITON)
    shown = account(desk)
    assert shown.code == DONE
    assert "Nothing to build" in shown.out


@pytest.mark.parametrize("command", ["gather", "account"])
def test_without_a_plan_nothing_is_said_to_be_done(desk: Desk, command: str) -> None:
    folder = ("--kernels", str(desk.kernels)) if command == "gather" else ("--built", str(desk.built))
    shown = desk.run(command, *folder)
    assert (shown.code, shown.out) == (BAD_INPUT, "")
    assert "cannot read the plan" in shown.err


def test_triton_too_is_for_versions(desk: Desk) -> None:
    shown = desk.run("jobs", "--only", TRITON, "--triton-too", "true")
    assert (shown.code, shown.out) == (BAD_INPUT, "")
    assert "--triton-too without --versions" in shown.err


def test_account_does_not_take_a_yanked_wheel_for_a_published_one(desk: Desk) -> None:
    desk.run("jobs", "--only", TRITON)
    build(desk, TRITON)
    publish(desk, TRITON)
    (name,) = (row.filename for row in read_manifest(desk.release))
    yank(DirectoryPublisher(desk.release), name, "wrong numbers")
    assert account(desk).code == FAILED


@pytest.fixture
def plain(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Outputs]:
    """`ci plain` with a cache that keeps what it would build."""
    matrix, cache, project = tmp_path / "matrix.yaml", tmp_path / "cache", read_fallback_project()
    matrix.write_text(edited())
    keep_plain(cache, matrix=small_matrix())
    make_wheel(PlainBuilds(cache, {}).wheel_folder(f"flash-attention-amd {project.version}", project.identity))

    def run(*arguments: str) -> Outputs:
        more = ("--matrix", matrix, "--cache", cache)
        return Outputs(*run_command(capsys, "ci", "plain", *arguments, *more))

    return run


def test_plain_builds_are_handed_on_with_digests_that_no_other_job_can_change(
    plain: Callable[..., Outputs], tmp_path: Path
) -> None:
    made = plain("--groups", json.dumps({"include": [{"group": "0", "cells": f"{TRITON} {CK}"}]}))
    assert made.code == DONE, made.err
    sums = made.outputs["sums"]
    assert len(json.loads(sums)) == 2
    assert plain("--sums", sums) == (DONE, "", "")

    added = tmp_path / "cache/plain/a.whl"
    added.write_bytes(b"of somebody")
    refused = plain("--sums", sums)
    assert (refused.code, "other plain builds than the job made" in refused.err) == (VERIFICATION_REFUSED, True)

    added.unlink()
    first = tmp_path / "cache/plain" / min(json.loads(sums))
    first.write_bytes(first.read_bytes() + b"\n")
    assert plain("--sums", sums).code == VERIFICATION_REFUSED


@pytest.mark.parametrize("groups", ["", "[]", "{}", '{"include": [{"cells": 1}]}', '{"include": [{"cells": "x"}]}'])
def test_text_that_is_no_groups_of_cells_is_an_input_error(plain: Callable[..., Outputs], groups: str) -> None:
    shown = plain("--groups", groups)
    assert (shown.code, shown.out) == (BAD_INPUT, "")
    assert "error: " in shown.err
