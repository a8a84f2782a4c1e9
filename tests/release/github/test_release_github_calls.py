"""A release keeps to GitHub's limits: the requests that it makes are few, counted and predicted, or wait."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from fake_github import TOKEN, FakeGitHub
from fake_github.outcome import sha256
from fake_github.repository import OWNER_REPO
from fake_sigstore import KERNELS, FakeSigstore
from release_factory import additions, flash_attn_wheel
from wheelfactory.core.cell import Cell
from wheelfactory.core.files import MATRIX
from wheelfactory.kernels.kernel_set import sets_of_cell
from wheelfactory.matrix.expand import expand
from wheelfactory.matrix.load import load_matrix
from wheelfactory.pipeline.batches import cut_batches, predict_run
from wheelfactory.release.github import client as clients
from wheelfactory.release.github.archive_host import GitHubArchiveHost
from wheelfactory.release.github.client import Client
from wheelfactory.release.github.publisher import GitHubPublisher
from wheelfactory.release.github.releases import Releases
from wheelfactory.release.transaction import add_attestation, publish, stage

SHIPPED = load_matrix(MATRIX)


class Jobs:
    """The jobs of a release that call GitHub, each with a new process."""

    def __init__(self, github: FakeGitHub, sigstore: FakeSigstore, folder: Path) -> None:
        self.github, self.sigstore, self.folder = github, sigstore, folder

    def releases(self) -> Releases:
        clock = self.github.clock
        return Releases(Client(self.github.repository.api, OWNER_REPO, TOKEN, clock=clock, sleep=clock.sleep))

    def store_sets(self, names: Iterable[str]) -> None:
        """Kernel sets of an earlier run, each in a release of its own."""
        repository = self.github.repository
        for name in names:
            file, content = f"{name}.tar.zst", name.encode()
            bundle = self.sigstore.sign({file: sha256(content)}, KERNELS)
            release = repository.create({"tag_name": name, "draft": True, "prerelease": True})
            for asset, data in ((file, content), (f"{file}.sigstore.json", bundle)):
                repository.upload(release.id, asset, len(data), sha256(data), data)
            repository.edit(release.id, {"draft": False})

    def link(self, names: Iterable[str]) -> None:
        host = GitHubArchiveHost(self.releases())
        assert all(host.download(name, self.folder) for name in names)

    def upload(self, cells: Iterable[Cell]) -> None:
        added = additions(flash_attn_wheel(self.folder, cell.id) for cell in cells)
        publisher = GitHubPublisher(self.releases(), "v1")
        stage(publisher, added)
        publisher.put_rows([row for row, _ in added])
        bundle = self.sigstore.sign({row.filename: row.sha256 for row, _ in added}, KERNELS)
        add_attestation(GitHubPublisher(self.releases(), "v1"), bundle, "bundle.json")

    def publish(self) -> None:
        publisher = GitHubPublisher(self.releases(), "v1")
        publish(publisher, [(row, None) for row in publisher.staged_rows()])

    def count(self) -> tuple[int, int]:
        """The uploads so far and the other calls of the API; downloads are from other hosts."""
        calls = [call for call in self.github.calls if "/repos/" in call]
        uploads = sum(call.startswith("POST ") and "/assets " in call for call in calls)
        return uploads, len(calls) - uploads


@pytest.mark.usefixtures("_trusted")
def test_a_release_makes_at_most_the_predicted_calls(
    github: FakeGitHub, sigstore: FakeSigstore, tmp_path: Path
) -> None:
    jobs = Jobs(github, sigstore, tmp_path)
    batches = cut_batches(SHIPPED, expand(SHIPPED).cells)[-5:]
    compiled = [batch for batch in batches if batch.is_compiled]
    sets = [{f"kernels-{name}" for cell in batch.cells for name in sets_of_cell(SHIPPED, cell)} for batch in compiled]
    jobs.store_sets(set().union(*sets))
    for names in sets:
        jobs.link(names)  # to build
        jobs.link(names)  # to verify
    assert jobs.count() == (0, 2 * len(sets)), "each job lists the releases once"
    for batch in batches:
        jobs.upload(batch.cells)
    jobs.publish()

    forecast, (uploads, calls) = predict_run(batches, []), jobs.count()
    cells = sum(len(batch.cells) for batch in batches)
    assert len(github.repository.published()[-1].files()) > 2
    assert forecast.uploads >= 3 * cells
    assert uploads <= forecast.uploads + len(batches) + 3, "with the rows of each batch, sums and manifest"
    assert forecast.calls / 3 < calls <= forecast.calls
    assert predict_run(cut_batches(SHIPPED, expand(SHIPPED).cells), []).calls <= 800


def test_requests_that_create_content_keep_to_githubs_limits(
    releases: Releases, github: FakeGitHub, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert clients.CREATIONS == ((60, 80), (3600, 500))
    monkeypatch.setattr(clients, "CREATIONS", ((60, 3), (3600, 5)))
    caplog.set_level("INFO", logger="wheelfactory")
    start = github.clock.now
    for number in range(7):
        releases.create(f"v{number}")
    assert github.clock.pauses == [60, 3540]
    assert "GitHub: 3 uploads within 60 s are its limit; waiting 60 s" in caplog.text
    assert github.clock.now - start == 3600
