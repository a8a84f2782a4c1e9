"""`verify --from SITE`: a wheel file, or what was installed from one, against the rows that a site published."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import zipfile
from base64 import urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import pytest
from installer.records import RecordEntry

from command_line import Cli, CommandResult
from loopback import served
from release_factory import flash_attn_wheel, make_release, quick_gates, stub_wheel
from wheelfactory.core.errors import BAD_INPUT, DONE, VERIFICATION_FAILED, InputError
from wheelfactory.core.published import MANIFEST_NAME
from wheelfactory.release import bundle
from wheelfactory.release.manifest import manifest_bytes, read_manifest
from wheelfactory.release.published_checks import _has_digest, check_installed, check_wheel, describe_checks
from wheelfactory.release.published_site import PublishedSite, read_site
from wheelfactory.verify.result import GateResult, Status

CELL = "fa2.8.3-rocm6.4-torch2.9.1-py3-triton"
NAME = "flash_attn-2.8.3+rocm64torch2.9triton-1-py3-none-any.whl"
INIT = "flash_attn/__init__.py"
DIST_INFO = "flash_attn-2.8.3+rocm64torch2.9triton.dist-info"


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """A release directory with the wheel of `CELL` and einops."""
    folder, made = tmp_path / "release", tmp_path / "made"
    make_release(folder, [flash_attn_wheel(made, CELL), stub_wheel(made, "einops", "0.8.2")])
    return folder


@pytest.fixture
def wheel(tmp_path: Path, release: Path) -> Path:
    """A copy of the published wheel, as a user downloaded it."""
    (tmp_path / "downloads").mkdir()
    return Path(shutil.copy(release / "wheels" / NAME, tmp_path / "downloads"))


def with_row(release: Path, **changes: object) -> None:
    """Change the flash-attn row of a manifest."""
    rows = [row.model_copy(update=changes if row.project == "flash-attn" else {}) for row in read_manifest(release)]
    (release / MANIFEST_NAME).write_bytes(manifest_bytes(rows))


def check(wheel: Path, site: Path | str) -> tuple[GateResult, ...]:
    return check_wheel(wheel, read_site(str(site), {}))


def findings_of(results: tuple[GateResult, ...]) -> list[str]:
    return [
        f"{result.gate}: expected {finding.expected}, found {finding.found}"
        for result in results
        for finding in result.findings
    ]


def test_a_wheel_of_a_directory_is_checked_but_for_its_attestation(cli: Cli, release: Path, wheel: Path) -> None:
    shown = cli("verify", "--from", release, wheel)
    (row,) = (row for row in read_manifest(release) if row.cell)
    assert (shown.code, shown.err) == (DONE, "")
    assert shown.out.splitlines() == [
        f"{NAME}: not checked: attestation",
        "  passed   row",
        f"  passed   digest (sha256 {row.sha256})",
        "  passed   build-record",
        f"  not run  attestation ({release} is a directory, which has no attestations)",
    ]
    document = json.loads(cli("verify", "--from", release, wheel, "--json").out)
    gates = {gate["gate"]: gate["status"] for gate in document["gates"]}
    passed = dict.fromkeys(("row", "digest", "build-record"), "passed")
    assert (document["file"], gates) == (NAME, {**passed, "attestation": "not run"})


def test_a_wheel_that_is_yanked_or_that_an_older_factory_published_is_called_that(
    cli: Cli, release: Path, wheel: Path
) -> None:
    (row,) = (row for row in read_manifest(release) if row.cell)
    without = tuple(gate for gate in row.gates if gate.gate != "emulation")
    for changes, note in (
        ({"gates": without}, "added later: numbers"),
        ({"gates": row.gates, "yanked": "wrong numbers"}, "yanked: wrong numbers"),
    ):
        with_row(release, **changes)
        shown = cli("verify", "--from", release, wheel)
        lines = [f"{NAME}: not checked: attestation; {note}", f"  passed   row ({note})"]
        assert (shown.code, shown.out.splitlines()[:2]) == (DONE, lines)


def test_a_site_without_a_repository_is_read_over_http(release: Path, wheel: Path) -> None:
    with served(release) as site:
        results = check(wheel, f"{site.url}/")
    assert describe_checks(results) == "not checked: attestation"
    assert results[-1].detail == f"{site.url}/ is no site of a GitHub repository, which has no attestations"


def test_a_changed_wheel_is_refused_by_its_digest(cli: Cli, release: Path, wheel: Path) -> None:
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("flash_attn/evil.py", b"")
    shown = cli("verify", "--from", release, wheel)
    (row,) = (row for row in read_manifest(release) if row.cell)
    assert (shown.code, shown.out.splitlines()[0]) == (VERIFICATION_FAILED, f"{NAME}: refused")
    assert f"{NAME}: expected sha256 {row.sha256}, found " in shown.out
    assert shown.out.count("expected") == 1


OF_RECORD = "build-record: expected what its row in the manifest says, found another"


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        ({"offload_archs": ("gfx942", "gfx950")}, f"{OF_RECORD} offload_archs"),
        ({"metadata_sha256": "1" * 64}, f"{OF_RECORD} metadata_sha256"),
        ({"cxx11_abi": True, "glibc": "2.28"}, f"{OF_RECORD} cxx11_abi, glibc"),
        ({"gates": quick_gates(CELL)}, "row: expected every required gate passed, found not checked: numbers"),
    ],
    ids=["archs", "METADATA", "two fields", "not fully verified"],
)
def test_a_row_that_differs_from_the_build_record_or_is_unverified_is_refused(
    release: Path, wheel: Path, change: dict[str, object], finding: str
) -> None:
    with_row(release, **change)
    assert findings_of(check(wheel, release)) == [finding]


def test_a_flash_attn_without_a_cell_needs_an_attestation(release: Path, wheel: Path) -> None:
    with_row(release, cell=None, label=None, gates=())
    local = read_site(str(release), {})
    results = check_wheel(wheel, PublishedSite("me", local.rows, local.base, "me/wheels"))
    assert findings_of(results)[0] == "row: expected every required gate passed, found no cell"
    assert (results[-1].gate, results[-1].status) == ("attestation", Status.FAILED)


def test_a_wheel_that_was_not_published_is_refused(release: Path, wheel: Path, tmp_path: Path) -> None:
    other = flash_attn_wheel(tmp_path / "other", CELL.replace("2.9.1", "2.8.0"))
    (finding,) = findings_of(check(other, release))
    assert finding == f"row: expected a row of that name in {release}, found none"
    renamed = wheel.rename(wheel.with_name(NAME.replace("torch2.9", "torch2.8")))
    (finding,) = findings_of(check(renamed, release))
    assert finding.endswith(f"found {NAME}, with the same bytes")


@pytest.mark.parametrize(
    ("url", "site", "repository"),
    [
        (None, "https://example.org/", None),
        ("https://example.org/releases/download/v1/x.whl", "https://example.org/", None),
        ("https://github.com/me/wheels/releases/download/v1/x.whl", "https://example.org/", "me/wheels"),
        ("https://github.com/else/x/releases/download/v1/x.whl", "https://me.github.io/wheels/", "me/wheels"),
        (None, "https://me.github.io/wheels/", "me/wheels"),
        (None, "https://me.github.io/", "me/me.github.io"),
        (None, "http://me.github.io/wheels/", None),
    ],
)
def test_the_repository_is_that_of_the_site_or_else_of_the_row(
    release: Path, monkeypatch: pytest.MonkeyPatch, url: str | None, site: str, repository: str | None
) -> None:
    data = (release / MANIFEST_NAME).read_bytes()
    monkeypatch.setattr("wheelfactory.release.published_site.read_manifest_bytes", lambda source: data)
    (row,) = (row for row in read_site(site, {}).rows if row.cell)
    assert read_site(site, {}).find_repository(row.model_copy(update={"url": url})) == repository


def test_without_sigstore_the_error_has_the_install_line(
    release: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle, "find_spec", lambda name: None)
    site = PublishedSite("github:me/wheels", read_manifest(release), repository="me/wheels")
    with pytest.raises(InputError, match="sigstore is missing") as refused:
        check_wheel(wheel, site)
    assert refused.value.hint == f"{sys.executable} -m pip install sigstore"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--from", "release", NAME, "--quick"), "--from runs no gates: release"),
        (("--from", "nowhere", NAME), "no such site: nowhere"),
        (("--from", "release", "absent.whl"), "no such file: absent.whl"),
        (("--from", "release", NAME), f"no such file: {NAME}"),
        (("--from", "release", "release/wheels"), "neither a wheel nor an installed project: release/wheels\n"),
        (("--from", "release", "no-such-project"), "neither a wheel nor an installed project: no-such-project in /"),
    ],
)
@pytest.mark.usefixtures("release")
def test_a_mistake_is_one_error_line(cli: Cli, arguments: tuple[str, ...], error: str) -> None:
    shown = cli("verify", *arguments)
    assert (shown.code, shown.out) == (BAD_INPUT, "")
    assert shown.err.startswith(f"error: {error}")
    assert shown.err.count("\n") == 2


@dataclass(frozen=True)
class Installed:
    """The published wheel as pip unpacks it, with the files that pip adds."""

    folder: Path
    scratch: Path

    @property
    def distribution(self) -> metadata.Distribution:
        return metadata.Distribution.at(self.folder / DIST_INFO)

    def record(self, *lines: str) -> None:
        """Add lines to RECORD."""
        with (self.folder / DIST_INFO / "RECORD").open("a") as record:
            record.writelines(f"{line}\n" for line in lines)

    def check(self, site: Path | str) -> tuple[GateResult, ...]:
        return check_installed(self.distribution, read_site(str(site), {}), self.scratch)[1]


@pytest.fixture
def installed(wheel: Path, tmp_path: Path) -> Installed:
    found = Installed(tmp_path / "site-packages", tmp_path)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(found.folder)
    cache = found.folder / "flash_attn/__pycache__/__init__.cpython-312.pyc"
    cache.parent.mkdir()
    cache.write_bytes(b"compiled")
    (found.folder / DIST_INFO / "INSTALLER").write_text("pip\n")
    digest = "ceebae7b8927a3227e5303cf5e0f1f7b34bb542ad7250ac03fbcde36ec2f1508"
    found.record(f"{DIST_INFO}/INSTALLER,sha256={digest},4", "flash_attn/__pycache__/__init__.cpython-312.pyc,,")
    return found


def test_an_install_is_compared_with_the_published_wheel(release: Path, installed: Installed) -> None:
    results = installed.check(release)
    assert [result.gate for result in results] == ["row", "digest", "build-record", "attestation", "installed"]
    assert findings_of(results) == []
    assert results[-1].status is Status.PASSED
    assert results[-1].detail == "5 files; not checked: 1 .pyc files, which Python compiled here"
    with served(release) as site:
        assert findings_of(installed.check(f"{site.url}/")) == []
    assert f"/wheels/{NAME.replace('+', '%2B')}" in site.requests


@pytest.mark.parametrize("kind", ["a file of this machine", "a larger file"])
def test_a_site_is_not_trusted_with_what_is_downloaded(release: Path, installed: Installed, kind: str) -> None:
    own = (release / "wheels" / NAME).as_uri().replace("+", "%2B")
    changes: dict[str, tuple[dict[str, object], str]] = {
        "a file of this machine": ({"url": own}, "url: a file on another machine"),
        "a larger file": ({"size": 100}, "more than 100 bytes"),
    }
    change, error = changes[kind]
    with_row(release, **change)
    with served(release) as site, pytest.raises(InputError, match=error):
        installed.check(f"{site.url}/")


def test_a_published_wheel_that_was_deleted_cannot_be_compared(release: Path, installed: Installed) -> None:
    (release / "wheels" / NAME).unlink()
    with pytest.raises(InputError, match="the published wheel is missing: file:"):
        installed.check(release)
    with served(release) as site, pytest.raises(InputError, match="the published wheel is missing: http:"):
        installed.check(f"{site.url}/")
    site_of_github = PublishedSite("github:me/wheels", read_manifest(release), repository="me/wheels")
    with pytest.raises(InputError, match="the published wheel is missing"):
        check_installed(installed.distribution, site_of_github, installed.scratch)


def change_file(installed: Installed) -> None:
    (installed.folder / INIT).write_text("evil = True\n")


def delete_file(installed: Installed) -> None:
    (installed.folder / INIT).unlink()


def add_file(installed: Installed) -> None:
    (installed.folder / "flash_attn/evil.py").write_text("")
    installed.record("flash_attn/evil.py,sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0")


def add_compiled_module(installed: Installed) -> None:
    """Python imports a .pyc beside the sources like a module of its own."""
    (installed.folder / "flash_attn/evil.pyc").write_bytes(b"")
    installed.record("flash_attn/evil.pyc,,")


def change_file_and_record(installed: Installed) -> None:
    """As somebody does it who knows of RECORD."""
    change_file(installed)
    path = installed.folder / DIST_INFO / "RECORD"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if not line.startswith(f"{INIT},")))
    installed.record(f"{INIT},,")


def delete_record(installed: Installed) -> None:
    (installed.folder / DIST_INFO / "RECORD").unlink()


def install_another_file(installed: Installed) -> None:
    document = {"url": "https://example.org/x.whl", "archive_info": {"hashes": {"sha256": "1" * 64}}}
    (installed.folder / DIST_INFO / "direct_url.json").write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("change", "file", "found"),
    [
        (change_file, INIT, "another sha256"),
        (change_file_and_record, INIT, "another sha256"),
        (delete_file, INIT, "no such file in RECORD or on disk"),
        (add_file, "flash_attn/evil.py", "a file that it does not have"),
        (add_compiled_module, "flash_attn/evil.pyc", "a file that it does not have"),
        (delete_record, NAME, "none"),
        (install_another_file, "direct_url.json", "1" * 64),
    ],
)
def test_an_install_that_differs_is_refused(
    release: Path, installed: Installed, change: Callable[[Installed], None], file: str, found: str
) -> None:
    change(installed)
    *_, last = installed.check(release)
    assert (last.gate, last.status) == ("installed", Status.FAILED)
    assert [(finding.file, finding.found) for finding in last.findings] == [(file, found)]


def test_an_entry_of_record_without_a_sha256_proves_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(b"")
    weaker = urlsafe_b64encode(hashlib.sha224(b"").digest()).decode().rstrip("=")
    for digest in ("", f"sha224={weaker}"):
        assert not _has_digest(tmp_path / "a.py", RecordEntry.from_elements("a.py", digest, "0"))


def test_an_install_is_compared_with_the_published_wheel_of_its_version_and_row_alone(
    release: Path, installed: Installed
) -> None:
    with_row(release, sha256="1" * 64)
    results = installed.check(release)
    assert [finding.split(":")[0] for finding in findings_of(results)] == ["digest"]
    assert (results[-1].gate, results[-1].status) == ("installed", Status.NOT_RUN)
    metadata_path = installed.folder / DIST_INFO / "METADATA"
    metadata_path.write_text(metadata_path.read_text().replace("Version: 2.8.3", "Version: 2.8.4"))
    results = installed.check(release)
    assert findings_of(results) == [f"row: expected a row of this version and these tags in {release}, found none"]


@pytest.mark.slow
@pytest.mark.parametrize("installer", ["pip", "uv"])
def test_what_an_installer_installs_is_what_was_published(
    cli: Cli, release: Path, wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installer: str
) -> None:
    python = tmp_path / "venv/bin/python"
    subprocess.run([sys.executable, "-m", "uv", "venv", "--quiet", tmp_path / "venv"], check=True)
    commands = {"pip": ("pip", "--python", python, "install"), "uv": ("uv", "pip", "install", "--python", python)}
    command = [sys.executable, "-m", *commands[installer], "--quiet", "--no-deps", wheel]
    environ = {"PATH": str(python.parent), "VIRTUAL_ENV": str(tmp_path / "venv"), "HOME": str(tmp_path)}
    subprocess.run(command, check=True, env=environ)
    subprocess.run([python, "-c", "import flash_attn"], check=True)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    shown: CommandResult = cli("verify", "--from", release, "flash-attn")
    assert (shown.code, shown.err) == (DONE, "")
    assert shown.out.splitlines()[0] == f"{NAME}: not checked: attestation"
    assert "  passed   installed (5 files" in shown.out
