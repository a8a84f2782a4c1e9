"""The report of a validation as a file: it reads back, matches its schema, and other files are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openapi_schema_validator import OAS31Validator

from validations import amd_validation, nvidia_validation, write_validation
from wheelfactory.core.errors import InputError
from wheelfactory.gpu.validate.report import VALIDATION_FORMAT, Validation, read_validation

SCHEMA = OAS31Validator(Validation.model_json_schema())
"""The dialect: JSON Schema 2020-12, as in OpenAPI 3.1."""


def values(**changed: object) -> dict[str, Any]:
    """A report as JSON has it, some of its values changed to what one need not take."""
    return {**amd_validation().model_dump(mode="json"), **changed}


@pytest.mark.parametrize("report", [amd_validation(), nvidia_validation()], ids=["on AMD", "non-AMD GPU"])
def test_a_report_reads_back_as_it_was_written_and_keeps_its_schema(tmp_path: Path, report: Validation) -> None:
    SCHEMA.validate(json.loads(report.model_dump_json()))
    assert read_validation(write_validation(tmp_path / "report.json", report)) == report


DAMAGE: list[tuple[object, str]] = [
    (values(flavour="spicy"), "flavour: Extra inputs are not permitted"),  # unknown key
    (values(cases=[{"name": "a", "status": "fine"}]), "cases.0.status: "),  # status of its own
    (values(hardware={"vendor": "intel"}), "hardware.vendor: "),  # vendor of its own
    (values(symbols={"a": "often"}), "symbols.a: "),  # no count
    ({"format": VALIDATION_FORMAT}, "factory: Field required"),  # no other field
    (values(format="wheelfactory-validation/2"), "format: Input should be 'wheelfactory-validation/1'"),
]


def test_a_damaged_report_is_refused_with_its_place(tmp_path: Path) -> None:
    for damaged, place in DAMAGE:
        path = tmp_path / "report.json"
        path.write_text(json.dumps(damaged))
        with pytest.raises(InputError, match="not a validation report") as refused:
            read_validation(path)
        assert refused.value.which.startswith(f"{path}: {place}")
        assert "validate WHEEL --json" in refused.value.hint
        assert not SCHEMA.is_valid(damaged)


def test_a_time_without_a_zone_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(json.dumps(values(time="2026-11-22T09:30:00")))
    with pytest.raises(InputError, match="time: Input should have timezone info"):
        read_validation(path)


def test_an_unreadable_report_is_refused(tmp_path: Path) -> None:
    for name, why in (("absent.json", "No such file or directory"), (".", "Is a directory")):
        with pytest.raises(InputError, match="cannot read the report") as refused:
            read_validation(tmp_path / name)
        assert why in refused.value.which


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
_FIELDS = st.sampled_from([*values()])
_ANY = st.binary(max_size=500) | st.just(b"[" * 100_000)
_REPORTS = st.dictionaries(_FIELDS, _JSON, max_size=3).map(lambda changed: json.dumps(values(**changed)).encode())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(_ANY | _REPORTS)
def test_any_bytes_are_read_or_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(data)
    try:
        assert read_validation(path).format == VALIDATION_FORMAT
    except InputError as error:
        assert str(path) in error.which
