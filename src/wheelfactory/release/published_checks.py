"""Check a wheel, or what was installed from one, against what a site published. No code of the wheel runs."""

from __future__ import annotations

from collections.abc import Iterator
from email.parser import HeaderParser
from importlib.metadata import Distribution
from itertools import islice
from pathlib import Path, PurePosixPath

from installer.records import InvalidRecordEntry, RecordEntry, parse_record_file
from packaging.utils import canonicalize_name, parse_wheel_filename

from wheelfactory.core.cell import FLASH_ATTN_NAME
from wheelfactory.core.errors import InputError
from wheelfactory.core.files import file_sha256
from wheelfactory.core.published import why_unverified
from wheelfactory.gpu.installed import read_archive_sha256
from wheelfactory.release.additions import row_differences
from wheelfactory.release.bundle import ATTESTED, BUNDLE_SUFFIX, PUBLISH_WORKFLOW, REF_VARIABLE, require_sigstore
from wheelfactory.release.manifest import WheelRow
from wheelfactory.release.published_site import PublishedSite
from wheelfactory.release.verified import unchecked_since, unverified_reason
from wheelfactory.verify.result import Finding, GateResult
from wheelfactory.wheel.read import Wheel

_WHEEL_CHECKS = ("row", "digest", "build-record", "attestation")
# the digest has a check of its own, commands of their own yank and add evidence, and the site knows the address
_CHANGED_LATER = ("sha256", "size", "yanked", "evidence", "url")
# what pip and uv write into dist-info beside the wheel's own files
_OF_INSTALLERS = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json", "uv_build.json")
_DO_NOT_USE = "do not install it"


def describe_checks(results: tuple[GateResult, ...]) -> str:
    """The results in words: ``verified``, or which checks failed or did not run, such as ``not checked: attestation``.

    A yanked wheel is called that as well.
    """
    reason = why_unverified(_WHEEL_CHECKS, ((result.gate, str(result.status)) for result in results)) or "verified"
    return "; ".join([reason, *(result.detail for result in results if result.gate == "row" and result.detail)])


def check_wheel(path: Path, site: PublishedSite) -> tuple[GateResult, ...]:
    """Check a wheel file against its row, and against the attestation that the site publishes.

    Raises `InputError` if the file is not a wheel's, if the attestation cannot be downloaded, or if sigstore, which
    verifies it, is not installed.
    """
    sha256 = file_sha256(Wheel.open(path).path)
    row = next((row for row in site.rows if row.filename == path.name), None)
    if row is None:
        same = next((f"{row.filename}, with the same bytes" for row in site.rows if row.sha256 == sha256), "none")
        return (_result("row", Finding(path.name, f"a row of that name in {site.name}", same, "not published there")),)
    checks = (_check_row(row), _check_digest(row, sha256), _check_build_record(row, path))
    return (*checks, _check_attestation(row, sha256, site))


def _check_row(row: WheelRow) -> GateResult:
    """Check that the row marks the wheel as verified. A yanked wheel passes, with a note."""
    notes = "; ".join(filter(None, [f"yanked: {row.yanked}" if row.yanked else "", unchecked_since(row)]))
    unverified = unverified_reason(row)
    if row.product == FLASH_ATTN_NAME and row.cell is None:
        # as a dependency, it would need neither gates nor an attestation
        unverified = "no cell"
    remedy = "the publisher must verify it: `wheelfactory run` without --quick"
    wrong = [Finding(row.filename, "every required gate passed", unverified, remedy)] if unverified else []
    return _result("row", *wrong, detail=notes)


def _check_digest(row: WheelRow, sha256: str) -> GateResult:
    if sha256 == row.sha256:
        return _result("digest", detail=f"sha256 {sha256}")
    return _result("digest", Finding(row.filename, f"sha256 {row.sha256}", sha256, _DO_NOT_USE))


def _check_build_record(row: WheelRow, path: Path) -> GateResult:
    """Compare the build record, METADATA and tags of the wheel with the row."""
    try:
        different = row_differences(row, path, _CHANGED_LATER)
    except InputError as error:
        return _result("build-record", Finding(path.name, "an undamaged wheel", str(error), _DO_NOT_USE))
    if not different:
        return _result("build-record", detail="" if row.cell else "none: a wheel without a cell")
    found = f"another {', '.join(different)}"
    return _result("build-record", Finding(path.name, "what its row in the manifest says", found, _DO_NOT_USE))


def _check_attestation(row: WheelRow, sha256: str, site: PublishedSite) -> GateResult:
    repository = site.find_repository(row)
    if row.project not in ATTESTED:
        return _not_checked("attestation", "another project built this dependency; its digest is pinned")
    if repository is None:
        place = "a directory" if site.is_local else "no site of a GitHub repository"
        return _not_checked("attestation", f"{site.name} is {place}, which has no attestations")
    require_sigstore()
    bundle = site.fetch_bundle(row)
    if bundle is None:
        remedy = f"older releases have none; ask GitHub: `gh attestation verify {row.filename} --repo {repository}`"
        name = f"{row.filename}{BUNDLE_SUFFIX}"
        return _result("attestation", Finding(name, "a bundle beside the published wheel", "none", remedy))
    # imported here: sigstore is optional, and takes a second
    from wheelfactory.release.attestation import check_attestation

    ref = site.environ.get(REF_VARIABLE, "")
    return check_attestation(bundle, row.filename, sha256, repository, PUBLISH_WORKFLOW, ref)


def check_installed(installed: Distribution, site: PublishedSite, scratch: Path) -> tuple[str, tuple[GateResult, ...]]:
    """Check an installed distribution: the published wheel as `check_wheel` does, then each file against its RECORD.

    Returns the file name of the published wheel, and the results. `scratch` is a folder for downloads: the published
    wheel is read. Raises `InputError` as `check_wheel` does, or if the published wheel cannot be read.
    """
    name = f"{canonicalize_name(installed.metadata['Name'] or '')} {installed.version}"
    row = _find_row(installed, site)
    if row is None:
        finding = Finding(name, f"a row of this version and these tags in {site.name}", "none", "not published there")
        return name, (_result("row", finding),)
    path = site.fetch_wheel(row, scratch)
    results = check_wheel(path, site)
    if any(result.findings for result in results if result.gate in ("digest", "build-record")):
        return row.filename, (*results, _not_checked("installed", "the published wheel is not the one of its row"))
    return row.filename, (*results, _check_files(installed, row, Wheel.open(path)))


def _find_row(installed: Distribution, site: PublishedSite) -> WheelRow | None:
    """Find the row of an installed distribution: by project, version and the tags that its WHEEL file names."""
    headers = HeaderParser().parsestr(installed.read_text("WHEEL") or "")
    tags, build = set(headers.get_all("Tag", [])), str(headers["Build"] or "")
    wanted = canonicalize_name(installed.metadata["Name"] or ""), installed.version
    for row in site.rows:
        _, _, number, found = parse_wheel_filename(row.filename)
        same_file = {str(tag) for tag in found} == tags and "".join(map(str, number)) == build
        if (row.project, row.version) == wanted and same_file:
            return row
    return None


def _check_files(installed: Distribution, row: WheelRow, wheel: Wheel) -> GateResult:
    """Check each installed file against the RECORD of the published wheel, and the digest that pip recorded."""
    findings = list(islice(_file_findings(installed, row, wheel), 20))
    caches = sum(_is_cache(str(file)) for file in installed.files or ())
    detail = f"{len(wheel.sizes)} files"
    if caches:
        detail += f"; not checked: {caches} .pyc files, which Python compiled here"
    return _result("installed", *findings, detail=detail)


def _file_findings(installed: Distribution, row: WheelRow, wheel: Wheel) -> Iterator[Finding]:
    remedy = "install the published wheel again: pip install --force-reinstall --no-deps"
    recorded = read_archive_sha256(installed.read_text("direct_url.json"))
    if recorded not in (None, row.sha256):
        yield Finding("direct_url.json", f"sha256 {row.sha256}", str(recorded), "it was installed from another file")
    if installed.read_text("RECORD") is None:
        yield Finding(row.filename, "an installed RECORD", "none", remedy)
        return
    files = {str(file): Path(str(file.locate())) for file in installed.files or ()}
    record = f"{wheel.dist_info}/RECORD"
    published = dict(_read_record(wheel.read(record)))
    for name, entry in published.items():
        path = files.get(name)
        if name == record:
            continue
        if path is None or not path.is_file():
            yield Finding(name, "a file of the published wheel", "no such file in RECORD or on disk", remedy)
        elif not _has_digest(path, entry):
            yield Finding(name, f"sha256={entry.hash_.value if entry.hash_ else 'none'}", "another sha256", remedy)
    of_installers = {f"{wheel.dist_info}/{name}" for name in _OF_INSTALLERS}
    for name in files.keys() - published.keys() - of_installers:
        if not _is_cache(name):
            yield Finding(name, "only files of the published wheel", "a file that it does not have", remedy)


def _read_record(data: bytes) -> Iterator[tuple[str, RecordEntry]]:
    """Yield each path in the RECORD of a wheel with its entry. Raises `InputError` if it is damaged."""
    try:
        for elements in parse_record_file(data.decode("utf-8", "replace").splitlines()):
            entry = RecordEntry.from_elements(*elements)
            yield entry.path, entry
    except InvalidRecordEntry as error:
        raise InputError("damaged RECORD", str(error), "the published wheel is damaged: do not use it") from None


def _has_digest(path: Path, entry: RecordEntry) -> bool:
    if entry.hash_ is None or entry.hash_.name != "sha256":
        return False
    with path.open("rb") as file:
        return entry.validate_stream(file)


def _is_cache(name: str) -> bool:
    path = PurePosixPath(name)
    return path.suffix == ".pyc" and path.parent.name == "__pycache__"


def _result(check: str, *findings: Finding, detail: str = "") -> GateResult:
    return GateResult.from_findings(check, findings, detail)


def _not_checked(check: str, reason: str) -> GateResult:
    # not required: such a wheel is not refused, and not called verified
    return GateResult.not_run(check, reason).model_copy(update={"required": False})
