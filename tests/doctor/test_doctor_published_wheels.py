"""The doctor's parser of manifests: it reads all that `release.manifest` writes, and never raises a traceback."""

from __future__ import annotations

import json

import pytest

from doctor.releases import BASE, as_read
from validations import amd_validation, nvidia_validation, with_evidence
from wheelfactory.core.errors import InputError
from wheelfactory.doctor.published_wheels import PublishedWheel, parse_wheels
from wheelfactory.gpu.validate.report import Hardware, ValidatedPackage
from wheelfactory.release.evidence import as_evidence
from wheelfactory.release.manifest import WheelRow, verified_archs
from wheelfactory.verify.result import GateResult, Status

SHA256 = "0123456789abcdef" * 4
FILENAME = "flash_attn-2.8.3+rocm64torch2.9-cp311-cp311-manylinux_2_28_x86_64.whl"
ROW = {
    "format": 2,
    "project": "flash-attn",
    "version": "2.8.3+rocm64torch2.9",
    "filename": FILENAME,
    "sha256": SHA256,
    "size": 1,
    "requires_python": ">=3.9",
    "metadata_sha256": SHA256,
    "published": "2026-01-01T00:00:00Z",
    "cell": "fa2.8.3-rocm6.4-torch2.9.1-cp311-ck",
    "label": "rocm64torch2.9",
}


def read(*rows: object) -> tuple[PublishedWheel, ...]:
    data = "".join(f"{json.dumps(row)}\n" for row in rows)
    return parse_wheels(data.encode(), "manifest.jsonl", BASE)


def refusal(data: bytes) -> str:
    with pytest.raises(InputError) as caught:
        parse_wheels(data, "manifest.jsonl", BASE)
    return str(caught.value)


def test_every_field_that_the_factory_writes_is_parsed(rows: tuple[WheelRow, ...]) -> None:
    rows = tuple(sorted(rows, key=lambda row: row.filename))
    for row, wheel in zip(rows, as_read(rows), strict=True):
        for field in ("project", "version", "filename", "sha256", "size", "requires_python", "yanked", "cxx11_abi"):
            assert getattr(wheel, field) == getattr(row, field)
        assert (wheel.cell.id if wheel.cell else None) == row.cell
        assert (str(wheel.label) if wheel.label else None) == row.label
        assert (wheel.archs, wheel.glibc) == (row.offload_archs, row.glibc)
        assert wheel.published == "2026-01-01T00:00:00Z"


def test_gates_have_their_status_and_unknown_fields_are_ignored(rows: tuple[WheelRow, ...]) -> None:
    gates = (GateResult.from_findings("import", []), GateResult.not_run("gpu", "no GPU"))
    (wheel,) = as_read([rows[0].model_copy(update={"gates": gates})])
    assert wheel.gates == (("import", str(Status.PASSED)), ("gpu", str(Status.NOT_RUN)))
    assert read({**ROW, "signature": {"by": "somebody"}}) == read(ROW)


def test_verified_archs_equal_the_factorys(rows: tuple[WheelRow, ...]) -> None:
    fallback = ValidatedPackage(project="flash-attention-amd", version="0.1.0", sha256=SHA256)
    mi250x = Hardware(vendor="amd", device="AMD Instinct MI250X", arch="gfx90a")
    passed = GateResult.from_findings("gpu", [], versions={"gpu": "gfx1100:xnack-", "torch": "2.9.1"})
    no_pass = GateResult.not_run("gpu", "no GPU"), GateResult.from_findings("import", [], versions={"gpu": "gfx942"})
    of_test_mode = as_evidence(amd_validation()).model_copy(update={"dropped_launch_options": ("waves_per_eu",)})
    (bare, *_) = rows
    ran = [
        bare,
        bare.model_copy(update={"gates": no_pass}),
        bare.model_copy(update={"gates": (passed,)}),
        bare.model_copy(update={"evidence": (of_test_mode,)}),
        with_evidence(bare, nvidia_validation(), nvidia_validation(dropped_launch_options=None, validated=fallback)),
        with_evidence(bare.model_copy(update={"gates": (passed,)}), amd_validation(), amd_validation(hardware=mi250x)),
    ]
    found = [wheel.verified_on for row in ran for wheel in as_read([row])]
    assert found == [verified_archs(row) for row in ran]
    assert found == [(), (), ("gfx1100",), (), (), ("gfx90a", "gfx942", "gfx1100")]


def test_only_a_local_manifest_can_name_local_files() -> None:
    data = json.dumps({**ROW, "url": f"file:///srv/wheels/{FILENAME}"}).encode()
    (wheel,) = parse_wheels(data, "manifest.jsonl", "file:///srv/site/")
    assert wheel.url == f"file:///srv/wheels/{FILENAME.replace('+', '%2B')}"
    assert refusal(data) == "not a manifest row: manifest.jsonl:1: url: a file on another machine"


def test_the_file_name_has_python_tag_and_machine() -> None:
    expected = [
        ("cp311-cp311-manylinux_2_28_x86_64", "cp311", "x86_64"),
        ("cp313-cp313t-linux_x86_64", "cp313t", "x86_64"),
        ("cp311-cp311-manylinux2014_aarch64.manylinux_2_17_aarch64", "cp311", "aarch64"),
        ("2-cp311-cp311-linux_x86_64", "cp311", "x86_64"),
        ("py3-none-any", None, None),
    ]
    for tags, tag, machine in expected:
        (wheel,) = read({**ROW, "filename": f"flash_attn-2.8.3+rocm64torch2.9-{tags}.whl"})
        assert (wheel.python_tag, wheel.machine) == (tag, machine)


def test_a_truncated_manifest_and_a_page_are_errors_and_an_empty_one_has_no_wheels() -> None:
    data = f"{json.dumps(ROW)}\n{json.dumps(ROW)}\n".encode()
    assert refusal(data[:-20]).startswith("not a manifest row: manifest.jsonl:2: ")
    assert refusal(b"<!doctype html><title>Not found</title>") == "not a manifest but an HTML page: manifest.jsonl"
    assert parse_wheels(b"", "manifest.jsonl", BASE) == ()
