"""The report of a validation as a file: it reads back, matches its schema, and other files are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
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
    for text in (json.dumps(values(time="2026-11-22T09:30:00")), "[" * 100_000):  # without a zone
        path.write_text(text)
        with pytest.raises(InputError, match="not a validation report"):
            read_validation(path)


def test_an_unreadable_report_is_refused(tmp_path: Path) -> None:
    for name, why in (("absent.json", "No such file or directory"), (".", "Is a directory")):
        with pytest.raises(InputError, match="cannot read the report") as refused:
            read_validation(tmp_path / name)
        assert why in refused.value.which
