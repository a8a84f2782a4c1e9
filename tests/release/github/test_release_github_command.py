"""`wheelfactory publish github:OWNER/REPO`: stage, commit, rehearse, yank, add evidence; and pip installs from it."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock
from urllib.parse import quote

import pytest

from command_line import Cli, CommandResult, run_command
from fake_github import TOKEN, FakeGitHub
from fake_github.outcome import assert_published, published_rows
from fake_sigstore import FakeSigstore
from loopback import served
from release_factory import additions, content_of, make_release, stub_wheel
from validations import amd_validation
from wheel_factory import MATRIX, finished_wheel, keep_plain, read_zip, write_zip
from wheelfactory.cli import main
from wheelfactory.commands.targets import open_publisher
from wheelfactory.core.cell import Cell
from wheelfactory.core.errors import BAD_INPUT, DONE, FAILED, VERIFICATION_FAILED
from wheelfactory.core.files import file_sha256
from wheelfactory.core.published import MANIFEST_NAME
from wheelfactory.release.directory import DirectoryPublisher, write_pages
from wheelfactory.release.evidence import as_evidence
from wheelfactory.release.manifest import manifest_bytes, read_manifest
from wheelfactory.release.transaction import publish
from wheelfactory.site.index import render_index
from wheelfactory.verify.gates import required_gates
from wheelfactory.verify.result import GateResult, Status

CELL = "fa2.8.3-rocm6.4-torch2.9.1-py3-triton"
GITHUB = "github:someone/wheels"
EITHER = "either publish, yank, add evidence or an attestation"


@pytest.fixture
def cli(_environ: None, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Publishes in an empty folder, with a small matrix that pins the einops of these tests."""
    monkeypatch.chdir(tmp_path)
    einops = stub_wheel(tmp_path / "made", "einops", "0.8.2")
    pin = {"version": "0.8.2", "wheel": einops.name, "sha256": file_sha256(einops), "source": "written for the tests"}
    matrix = {**MATRIX.model_dump(mode="json", by_alias=True, exclude_defaults=True), "dependencies": {"einops": pin}}
    Path("matrix.yaml").write_text(json.dumps(matrix))  # which is YAML as well

    keep_plain(tmp_path / "cache")

    def run(*arguments: str | Path) -> CommandResult:
        return run_command(capsys, "publish", *arguments, "--matrix", "matrix.yaml", "--cache", tmp_path / "cache")

    return run


@pytest.fixture
def built(cli: Cli, tmp_path: Path) -> Path:
    """What a build job hands over: a release directory with a verified wheel and the dependency of all."""
    wheels = [finished_wheel(tmp_path / "made", Cell.parse(CELL)), tmp_path / "made/einops-0.8.2-py3-none-any.whl"]
    publish(DirectoryPublisher(tmp_path / "cell"), additions(wheels))
    return tmp_path / "cell"


def test_a_built_cell_is_published_with_its_gates_as_recorded_and_yanked_under_a_tag_of_its_own(
    cli: Cli, github: FakeGitHub, built: Path
) -> None:
    shown = cli(GITHUB, built, "--tag", "v1", "--site", "https://example.org/wheels/")
    assert (shown.code, shown.out) == (DONE, f"{GITHUB}: 2 files published\n")
    assert_published(github.repository, read_manifest(built))
    assert "[3/3] publish" in shown.err
    (release,) = github.repository.releases.values()
    assert "--index-url https://example.org/wheels/simple/rocm64/torch2.9/triton/" in str(release.body)
    assert "gh attestation verify" in str(release.body)
    name = next(row.filename for row in read_manifest(built) if row.cell)
    assert cli(GITHUB, "--yank", name, "--reason", "wrong kernels", "--tag", "yank-1").code == DONE
    assert {row.filename: row.yanked for row in published_rows(github.repository)}[name] == "wrong kernels"


def attest(cli: Cli, target: str | Path, *wheels: Path) -> None:
    """Store a bundle beside staged wheels, which nobody verifies here."""
    Path("bundle.json").write_bytes(FakeSigstore().sign({wheel.name: file_sha256(wheel) for wheel in wheels}))
    assert cli(target, "--tag", "v1", "--attestation", "bundle.json").code == DONE


@pytest.mark.parametrize("target", [GITHUB, "release"])
def test_what_is_staged_and_attested_is_published_by_later_jobs_without_its_files(
    cli: Cli, github: FakeGitHub, built: Path, tmp_path: Path, target: str
) -> None:
    """Another batch fills the same draft, and is not attested."""
    other = finished_wheel(tmp_path / "made", Cell.parse(CELL.replace("rocm6.4", "rocm7.2")))
    publish(DirectoryPublisher(tmp_path / "other"), additions([other]))
    for folders in ((built,), (built, tmp_path / "other")):
        assert cli(target, *folders, "--tag", "v1", "--stage").code == DONE
    assert [row.filename for row in open_publisher(target, github.environ()).rows()] == []
    attest(cli, target, next((built / "wheels").glob("flash_attn-*.whl")))
    rows = read_manifest(built)
    shutil.rmtree(built)
    shown = cli(target, "--tag", "v1", "--publish-staged")
    assert (shown.code, shown.out.endswith(": 2 files published\n")) == (DONE, True), shown.err
    assert (published_rows(github.repository) if target == GITHUB else [*read_manifest(Path(target))]) == [*rows]
    kept = [name for release in github.repository.releases.values() for name in release.files()]
    kept += [path.name for path in Path(target).glob("*")]
    assert not [name for name in kept if name.startswith("staged-") or "rocm72" in name]
    again = cli(target, "--tag", "v1", "--publish-staged")
    assert (again.code, again.out, "nothing is staged" in again.err) == (DONE, "", True)


def test_dry_run_shows_each_call_that_is_made_and_changes_nothing(cli: Cli, github: FakeGitHub, built: Path) -> None:
    shown = cli(GITHUB, built, "--tag", "v1", "--dry-run")
    assert shown.code == DONE
    assert all(call.startswith("GET") for call in github.calls)
    assert github.repository.releases == {}
    home = f"{github.repository.api}/repos/someone/wheels/releases"
    wheel = "flash_attn-2.8.3%2Brocm64torch2.9triton-py3-none-any.whl"
    size = next((built / "wheels").glob("flash_attn*.whl")).stat().st_size
    lines = shown.out.splitlines()
    assert lines[0] == f"POST {home}  tag_name=v1  name=v1  draft=True  prerelease=False"
    assert f"POST {home}/NEW1/assets?name={wheel}  {size} bytes" in lines
    assert lines[-1] == f"PATCH {home}/NEW1  tag_name=v1  draft=False  make_latest=true"
    assert "dry run: nothing was changed" in shown.err
    assert TOKEN not in shown.out + shown.err
    github.calls.clear()
    cli(GITHUB, built, "--tag", "v1", "--stage")
    (draft,) = github.repository.drafts()
    github.repository.upload(draft.id, "stale.whl", 1, "0" * 64, b"s")
    remaining = cli(GITHUB, built, "--tag", "v1", "--dry-run").out.splitlines()
    assert [line.split()[0] for line in remaining] == ["DELETE", "DELETE", "POST", "POST", "PATCH"]
    assert "stale.whl" in draft.files()
    github.fresh()
    cli(GITHUB, built, "--tag", "v1")
    made = [call.split() for call in github.calls if not call.startswith("GET")]
    assert [line.split()[0] for line in lines] == [method for method, *_ in made]
    names = [line.split("name=")[1].split()[0] for line in lines if "/assets?" in line]
    assert names == [name.replace("+", "%2B") for _, _, *named in made for name in named]
    assert cli(GITHUB, built, "--tag", "v2", "--dry-run").out == ""  # all of it is published


def test_dry_run_into_a_directory_shows_the_files_that_a_run_writes(cli: Cli, built: Path, tmp_path: Path) -> None:
    before = content_of(tmp_path)
    shown = cli("release", built, "--dry-run")
    assert content_of(tmp_path) == before
    assert not (tmp_path / "release").exists()
    assert [line.split()[1].removeprefix(f"{tmp_path}/release/") for line in shown.out.splitlines()] == [
        "wheels/einops-0.8.2-py3-none-any.whl",
        "wheels/einops-0.8.2-py3-none-any.whl.metadata",
        "wheels/flash_attn-2.8.3+rocm64torch2.9triton-py3-none-any.whl",
        "wheels/flash_attn-2.8.3+rocm64torch2.9triton-py3-none-any.whl.metadata",
        "SHA256SUMS",
        "manifest.jsonl",
        "simple",
    ]
    assert cli("release/new", built).code == DONE
    assert len(read_manifest(Path("release/new"))) == 2


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((GITHUB, "cell"), f"no release tag: {GITHUB}"),
        (("github:someone", "cell", "--tag", "v1"), "not a repository: github:someone"),
        ((GITHUB, "empty", "--tag", "v1"), "no such manifest: empty/manifest.jsonl"),
        ((GITHUB, "cell", "--tag", "v1", "--checksums", "s"), "bad arguments: --checksums"),
        ((GITHUB, "--yank", "a", "--stage", "--tag", "v1"), EITHER),
        ((GITHUB, "--evidence", "a", "--yank", "b", "--tag", "v1"), EITHER),
        ((GITHUB, "cell", "--evidence", "a", "--tag", "v1"), EITHER),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_contradicting_arguments_are_refused(
    cli: Cli, github: FakeGitHub, built: Path, arguments: tuple[str, ...], error: str
) -> None:
    Path("empty").mkdir()
    shown = cli(*arguments)
    assert (shown.code, shown.out) == (BAD_INPUT, "")
    assert shown.err.startswith(f"error: {error}")
    assert github.repository.releases == {}


@pytest.mark.parametrize(
    "command",
    [
        ("ci", "jobs", "wheelhuose", "--jobs", "jobs.json"),
        ("status", "wheelhuose"),
        ("index", "wheelhuose"),
        ("publish", "wheelhuose", "--yank", "a.whl", "--reason", "b"),
        ("publish", "wheelhuose", "--evidence", "a.json"),
    ],
    ids=" ".join,
)
def test_a_mistyped_directory_is_an_error_before_any_download(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    started = Mock(side_effect=AssertionError("the network is used"))
    monkeypatch.setattr(socket.socket, "connect", started)
    monkeypatch.setattr(subprocess, "Popen", started)
    shown = run_command(capsys, *command)
    assert (shown.code, shown.out) == (BAD_INPUT, "")
    assert re.match("error: no such (directory|manifest): wheelhuose\nhint: name a", shown.err)
    assert list(tmp_path.iterdir()) == []


def rewrite(folder: Path, **changes: object) -> None:
    """Change the row of the cell's wheel."""
    rows = [row.model_copy(update=changes) if row.cell else row for row in read_manifest(folder)]
    (folder / MANIFEST_NAME).write_bytes(manifest_bytes(rows))


def gate(name: str, status: Status) -> GateResult:
    return GateResult(gate=name, status=status, required=False)


ALL = tuple(GateResult(gate=name, status=Status.PASSED) for name in required_gates(Cell.parse(CELL).backend))
NO_FILE = "flash_attn-2.8.3+rocm64torch2.9triton-7-py3-none-any.whl"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gates": ()}, "archive, identity"),
        ({"gates": ALL[:-1]}, "not checked: numbers"),
        ({"gates": (*ALL[:-1], gate("interpreter", Status.NOT_RUN))}, "not checked: numbers"),
        ({"gates": (*ALL, gate("gpu", Status.FAILED))}, "failed: gpu"),
        ({"offload_archs": ("gfx90a",)}, "differ in offload_archs"),
        ({"yanked": "rumor"}, "differ in yanked"),
        ({"evidence": (as_evidence(amd_validation()),)}, "differ in evidence"),
        ({"filename": NO_FILE}, "is missing"),
        ({"cell": None, "label": None}, "nor a pinned dependency"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_row_that_does_not_hold_is_refused(
    cli: Cli, github: FakeGitHub, built: Path, changes: dict[str, object], message: str
) -> None:
    rewrite(built, **changes)
    shown = cli(GITHUB, built, "--tag", "v1")
    assert shown.code == VERIFICATION_FAILED
    assert shown.err.startswith("error: verification failed: ")
    assert message in shown.err
    assert github.calls == []


@pytest.mark.slow
def test_pip_installs_from_a_release_through_the_index(
    cli: Cli, github: FakeGitHub, built: Path, tmp_path: Path
) -> None:
    cli(GITHUB, built, "--tag", "v1")
    rows = open_publisher(GITHUB, github.environ(token=None)).rows()
    made = tmp_path / "torch"
    make_release(made, [stub_wheel(tmp_path / "made", "torch", "2.9.1")])
    write_pages(tmp_path / "site", render_index(rows))
    target = tmp_path / "installed"
    command = [sys.executable, "-m", "pip", "install", "--target", str(target), "--find-links", str(made / "wheels")]
    command += ["--no-cache-dir", "--disable-pip-version-check", "flash-attn"]
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PIP_CONFIG_FILE": os.devnull}
    with served(tmp_path / "site") as site:
        command += ["--index-url", f"{site.url}/simple/rocm64/torch2.9/triton/"]
        done = subprocess.run(command, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (target / "flash_attn/__init__.py").is_file()
    assert (target / "einops/__init__.py").is_file()
    wheel = "/someone/wheels/releases/download/v1/flash_attn-2.8.3+rocm64torch2.9triton-py3-none-any.whl"
    assert {wheel, f"{wheel}.metadata"} <= set(github.downloads)


def test_a_site_omits_deleted_files_which_the_weekly_check_and_status_miss(
    cli: Cli, github: FakeGitHub, built: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cli(GITHUB, built, "--tag", "v1")
    index = ["index", GITHUB, "--matrix", "matrix.yaml", "--dest", "site"]
    assert main(index) == DONE
    rows = read_manifest(Path("site"))
    assert [row.filename for row in rows] == [row.filename for row in read_manifest(built)]
    assert all(str(row.url).endswith(f"/releases/download/v1/{quote(row.filename)}") for row in rows)
    name = next(row.filename for row in rows if row.cell)
    (release,) = github.repository.releases.values()
    release.assets = {number: asset for number, asset in release.assets.items() if asset.name != name}
    assert main(index) == DONE
    assert name not in {row.filename for row in read_manifest(Path("site"))}
    assert [row.filename for row in read_manifest(Path("site/lost.jsonl"))] == [name]
    assert name in capsys.readouterr().err
    site = ("--site", Path("site").resolve().as_uri(), "--expect", "site/manifest.jsonl")
    shown = run_command(capsys, "ci", "check", GITHUB, *site, "--matrix", "matrix.yaml", "--cache", "cache")
    assert shown.code == VERIFICATION_FAILED
    assert f"cells: {CELL}: expected a wheel, found " in shown.out
    shown = run_command(capsys, "status", GITHUB, "--matrix", "matrix.yaml", "--only", CELL, "--json")
    assert (shown.code, json.loads(shown.out)["yanked"]) == (FAILED, 1)
    assert main(["index", GITHUB]) == BAD_INPUT
    assert "--dest" in capsys.readouterr().err


def test_an_unexpected_cell_is_refused_before_uploading(cli: Cli, github: FakeGitHub, built: Path) -> None:
    for other in (CELL.replace("2.9.1", "2.8.0"), f"{CELL}:1"):
        shown = cli(GITHUB, built, "--tag", "v1", "--stage", "--expect", other)
        assert shown.code == VERIFICATION_FAILED
        assert f"{CELL}, build tag (0, 0), is not in the list of --expect" in shown.err
    assert github.repository.releases == {}
    assert cli(GITHUB, built, "--tag", "v1", "--stage", "--expect", f"another {CELL}").code == DONE


def test_rows_and_wheels_of_a_workflow_are_staged_from_two_folders(
    cli: Cli, github: FakeGitHub, built: Path, tmp_path: Path
) -> None:
    """The wheels are an artifact of one job, the rows of another; only verified wheels are staged and attested."""
    rows, wheels = tmp_path / "rows/cell", tmp_path / "dist"
    rows.mkdir(parents=True)
    (built / "manifest.jsonl").rename(rows / "manifest.jsonl")
    (built / "wheels").rename(wheels)
    refused = finished_wheel(wheels, Cell.parse(CELL.replace("rocm6.4", "rocm7.2")))
    sums = tmp_path / "sums"
    shown = cli(GITHUB, rows, "--wheels", wheels, "--tag", "v1", "--stage", "--checksums", sums)
    assert shown.code == DONE, shown.err
    (release,) = github.repository.releases.values()
    staged = {asset.name for asset in release.assets.values()}
    wheel = next(path for path in wheels.glob("flash_attn-*.whl") if path != refused)
    assert wheel.name in staged and refused.name not in staged
    assert sums.read_text() == f"{file_sha256(wheel)}  {wheel.name}\n", "no dependency, no wheel without a row"


def test_a_cell_published_by_another_run_is_skipped(cli: Cli, github: FakeGitHub, built: Path, tmp_path: Path) -> None:
    cli(GITHUB, built, "--tag", "v1")
    rebuilt = finished_wheel(tmp_path / "rebuilt", Cell.parse(CELL))
    write_zip(rebuilt, read_zip(rebuilt), date_time=(2026, 1, 1, 0, 0, 0))
    fresh = finished_wheel(tmp_path / "rebuilt", Cell.parse(CELL.replace("rocm6.4", "rocm7.2")))
    publish(DirectoryPublisher(tmp_path / "later"), additions((rebuilt, fresh)))
    shown = cli(GITHUB, "later", "--tag", "v2")
    assert shown.code == DONE, shown.err
    assert f"skipping {rebuilt.name}: already published with different content" in shown.err
    rows = {row.filename: row.sha256 for row in published_rows(github.repository)}
    assert rows[fresh.name] == file_sha256(fresh)
    assert rows[rebuilt.name] != file_sha256(rebuilt)
