"""Kernel sets from one job to the next: collected, attested, published on GitHub, and downloaded for a build."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from command_line import Cli, CommandResult
from fake_github import FakeGitHub
from fake_github.outcome import content_of
from fake_github.repository import OWNER_REPO
from fake_sigstore import KERNELS, FakeSigstore
from kernel_archive_factory import fill, proof_of
from small_matrix import SMALL, small_matrix
from wheelfactory.core.errors import BAD_INPUT, DONE, FAILED, VERIFICATION_FAILED
from wheelfactory.core.files import file_sha256
from wheelfactory.kernels.archive import pack_archive
from wheelfactory.kernels.kernel_set import group_kernel_sets, stored_set_name
from wheelfactory.matrix.expand import expand
from wheelfactory.pipeline.jobs import CellJob, KernelSetJobs, WorkflowJobs

GITHUB = f"github:{OWNER_REPO}"
KERNEL_SET = group_kernel_sets(small_matrix(), expand(small_matrix()).cells)[0]
NAME = stored_set_name(small_matrix(), KERNEL_SET)
CELL = KERNEL_SET.cells[0].id


class Steps(NamedTuple):
    """The steps of the job that collects kernels, and the download in a build job."""

    cli: Cli
    folder: Path
    archive: Path
    """What the jobs before compiled."""

    def run_collect(self, target: str | Path) -> CommandResult:
        """Run `ci collect`."""
        return self.cli(
            *("ci", "collect", target, "--jobs", self.folder / "jobs.json", "--kernels", self.archive.parent),
            *("--unattested", self.folder / "kernels.sha256"),
        )

    def collect(self) -> dict[str, str]:
        """Run `ci collect`; return its outputs."""
        shown = self.run_collect(GITHUB)
        assert shown.code == DONE, shown.err
        return dict(line.split("=", 1) for line in shown.out.splitlines())

    def attest(self, sigstore: FakeSigstore) -> Path:
        """Sign what `ci collect` wrote, as actions/attest does with `subject-checksums`."""
        lines = (self.folder / "kernels.sha256").read_text().splitlines()
        bundle = self.folder / "attestation.json"
        bundle.write_bytes(
            sigstore.sign({name: sha256 for sha256, name in (line.split("  ") for line in lines)}, KERNELS)
        )
        return bundle

    def arguments(self, bundle: Path) -> tuple[str | Path, ...]:
        """The command that publishes what is attested."""
        return "ci", "publish-kernels", GITHUB, "--jobs", self.folder / "jobs.json", "--attestation", bundle

    def download(self) -> tuple[str | Path, ...]:
        """The command of a build job."""
        more = ("--matrix", self.folder / "matrix.yaml", "--cache", self.folder / "cache")
        return "kernels", KERNEL_SET.id, "--download", GITHUB, "--dest", self.folder / "downloaded", *more


@pytest.fixture
def steps(_environ: None, _trusted: None, cli: Cli, tmp_path: Path) -> Steps:
    (tmp_path / "matrix.yaml").write_text(SMALL)
    kernel_set = KernelSetJobs(id=KERNEL_SET.id, archive_name=NAME, shards=("1/1",))
    jobs = WorkflowJobs(cells=(CellJob(id=CELL, batch="one", kernel_sets=(KERNEL_SET.id,)),), kernel_sets=(kernel_set,))
    jobs.write(tmp_path / "jobs.json")
    proof = proof_of(KERNEL_SET.id)
    archive = pack_archive(fill(tmp_path / "store"), KERNEL_SET.id, tmp_path / "kernels", None, proof=proof)
    return Steps(cli, tmp_path, archive)


def test_a_set_is_collected_attested_published_and_downloaded_and_each_step_can_be_repeated(
    github: FakeGitHub, steps: Steps, sigstore: FakeSigstore
) -> None:
    for _ in range(2):
        outputs = steps.collect()
        assert (outputs["unattested"], outputs["count"]) == ("true", "1")
        assert steps.cli(*steps.download()).code == FAILED, "a draft is not stored"
    assert (steps.folder / "kernels.sha256").read_text() == f"{file_sha256(steps.archive)}  {steps.archive.name}\n"
    assert github.repository.published() == []
    bundle = steps.attest(sigstore)
    shown = steps.cli(*steps.arguments(bundle))
    assert (shown.code, shown.out) == (DONE, ""), shown.err
    assert steps.cli(*steps.arguments(bundle)).code == DONE
    assert f"{KERNEL_SET.id}: published with its attestation" in shown.err
    (release,) = github.repository.published()
    assert (release.tag, github.repository.drafts()) == (NAME, [])
    assert content_of(release, f"{steps.archive.name}.sigstore.json") == bundle.read_bytes()
    downloaded = steps.cli(*steps.download())
    assert downloaded.code == DONE, downloaded.err
    assert Path(downloaded.out.strip()).read_bytes() == steps.archive.read_bytes()
    assert steps.collect()["unattested"] == "false"
    assert (steps.folder / "kernels.sha256").read_text() == ""


def test_kernels_that_nobody_executed_are_not_uploaded_and_those_of_somebody_else_not_downloaded(
    github: FakeGitHub, steps: Steps
) -> None:
    pack_archive(fill(steps.folder / "store"), KERNEL_SET.id, steps.archive.parent, None)
    outputs = steps.collect()
    assert (outputs["unattested"], outputs["count"]) == ("false", "0"), "the cell of a failed set is not built"
    assert github.repository.releases == {}
    release = github.repository.create({"tag_name": NAME, "draft": True, "prerelease": True})
    content = steps.archive.read_bytes()
    github.repository.upload(release.id, steps.archive.name, len(content), file_sha256(steps.archive), content)
    github.repository.edit(release.id, {"draft": False})
    shown = steps.cli(*steps.download())
    error, hint = shown.err.splitlines()[-2:]
    assert (shown.code, shown.out) == (VERIFICATION_FAILED, "")
    assert error.startswith(f"error: kernel archive without an attestation: release {NAME} has no ")
    assert "compile the set again: wheelfactory kernels SET" in hint
    assert list((steps.folder / "downloaded").iterdir()) == []
    outputs = steps.collect()
    assert (outputs["unattested"], outputs["count"]) == ("false", "0"), "the cell of a failed set is not built"


def test_a_bundle_of_another_run_is_refused(steps: Steps, sigstore: FakeSigstore) -> None:
    bundle = steps.folder / "attestation.json"
    bundle.write_bytes(sigstore.sign({"ck-1c6f3a07-rocm6.1-gfx90a-0123456789abcdef.tar.zst": "0" * 64}, KERNELS))
    shown = steps.cli(*steps.arguments(bundle))
    assert shown.code == BAD_INPUT
    assert shown.err.startswith("error: not an archive of this run's kernel sets: ck-1c6f3a07-")
    bundle.unlink()
    assert steps.cli(*steps.arguments(bundle)).err.startswith("error: cannot read the attestation: ")


def test_only_the_workflow_uploads_to_github(steps: Steps) -> None:
    shown = steps.cli("kernels", KERNEL_SET.id, "--merge", "--upload", GITHUB)
    assert (shown.code, shown.out) == (BAD_INPUT, "")
    assert shown.err.startswith(f"error: only workflow runs upload kernels to GitHub: {GITHUB}\nhint: run the workflow")


def test_a_directory_is_used_without_attestations_and_says_so(steps: Steps, tmp_path: Path) -> None:
    release = tmp_path / "release"
    release.mkdir()
    shown = steps.run_collect(release)
    said = f"{release} is a directory, which has no attestations: only the sha256 of kernel archives is checked"
    assert (shown.code, "unattested=false" in shown.out.splitlines()) == (DONE, True)
    assert shown.err.count(said) == 1
    downloaded = steps.cli(*(release if word == GITHUB else word for word in steps.download()))
    assert (downloaded.code, downloaded.err.count(said)) == (DONE, 1)
