"""The body of a request: each field as GitHub writes it, and nothing that can take long or go wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from wheelfactory.core.cell import Backend
from wheelfactory.core.checkout import ROOT
from wheelfactory.site.request import Field, read_request

FORM = Path(ROOT, ".github/ISSUE_TEMPLATE/wheel-request.yml")

BODY = """\
### torch

2.9.1+rocm6.4

### ROCm

_No response_

### Python

3.12

### GPU

MI300X

### flash-attn

_No response_

### Backend

None
"""


def test_each_field_that_was_filled_in_is_read() -> None:
    assert read_request(BODY) == {Field.TORCH: "2.9.1+rocm6.4", Field.PYTHON: "3.12", Field.GPU: "MI300X"}


def test_line_ends_of_browsers_are_read_too() -> None:
    assert read_request(BODY.replace("\n", "\r\n")) == read_request(BODY)


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ("", {}),
        ("please build a wheel", {}),
        ("### Operating system\n\nLinux\n", {}),
        ("### torch\n\n### Python\n\n3.12", {Field.PYTHON: "3.12"}),
        ("### torch\n\n2.9.1\n\n### torch\n\n2.8.0", {Field.TORCH: "2.9.1"}),
        ("### torch\n\n2.9.1\nand more\n", {Field.TORCH: "2.9.1"}),
        ("#### torch\n\n2.9.1", {}),
    ],
    ids=["empty", "free text", "other field", "no value", "twice", "two lines", "other level"],
)
def test_what_is_not_of_the_form_is_left_out(body: str, fields: dict[Field, str]) -> None:
    assert read_request(body) == fields


@settings(max_examples=100, deadline=None)
@given(st.text(st.sampled_from("# \n\rtorch2.9_`<@\u2028\x00")))
def test_any_text_is_read_as_some_fields(body: str) -> None:
    assert all(0 < len(value) <= 200 for value in read_request(body).values())


def test_a_huge_body_is_read_to_its_limit() -> None:
    assert read_request("### torch\n\n" + "9" * 10**7) == {Field.TORCH: "9" * 200}
    assert read_request("\n" * 10**6 + "### torch\n\n2.9.1") == {}


def test_the_form_asks_for_exactly_the_fields_that_are_read() -> None:
    form = yaml.safe_load(FORM.read_text())
    assert [item["attributes"]["label"] for item in form["body"]] == [field.value for field in Field]
    assert form["labels"] == ["wheel-request"]


def test_only_torch_must_be_filled_in() -> None:
    form = yaml.safe_load(FORM.read_text())
    required = [item["id"] for item in form["body"] if item.get("validations", {}).get("required")]
    assert required == ["torch"]


def test_the_form_offers_every_backend_and_no_version_that_goes_out_of_date() -> None:
    form = yaml.safe_load(FORM.read_text())
    choices = {item["id"]: item["attributes"]["options"] for item in form["body"] if item["type"] == "dropdown"}
    assert choices == {"backend": ["either", *map(str, Backend)]}
