"""The issue forms follow GitHub's syntax for forms, and name pages that exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from wheelfactory.core.files import ROOT

FORMS = sorted(path for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")

# GitHub's documentation, "Syntax for GitHub's form schema": the attributes that each type of element needs and takes
NEEDED = {"markdown": {"value"}, "input": {"label"}, "textarea": {"label"}, "dropdown": {"label", "options"}}
TAKEN = {
    "markdown": {"value"},
    "input": {"label", "description", "placeholder", "value"},
    "textarea": {"label", "description", "placeholder", "value", "render"},
    "dropdown": {"label", "description", "multiple", "options", "default"},
}


@pytest.fixture(params=FORMS, ids=lambda path: path.name)
def form(request: pytest.FixtureRequest) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(request.param.read_text())
    return loaded


def fields(form: dict[str, Any]) -> list[dict[str, Any]]:
    return [element for element in form["body"] if element["type"] != "markdown"]


def test_there_are_a_wheel_request_and_a_gpu_report() -> None:
    assert [path.stem for path in FORMS] == ["gpu-report", "wheel-request"]


def test_a_form_has_the_keys_that_github_knows_and_names_pages_that_exist(form: dict[str, Any]) -> None:
    assert {"name", "description", "body"} <= form.keys() <= {"name", "description", "title", "labels", "body"}
    for element in form["body"]:
        assert element.keys() <= {"type", "id", "attributes", "validations"}
        assert NEEDED[element["type"]] <= element["attributes"].keys() <= TAKEN[element["type"]]
        assert all(isinstance(required, bool) for required in element.get("validations", {}).values())
    for page in re.findall(r"docs/[\w/.-]+\.md", str(form)):
        assert Path(ROOT, page).is_file(), page


def test_fields_and_options_are_distinct(form: dict[str, Any]) -> None:
    ids, labels = [one["id"] for one in fields(form)], [one["attributes"]["label"] for one in fields(form)]
    assert ids
    assert [one for one in ids if not re.fullmatch(r"[A-Za-z0-9_-]+", one)] == []
    choices = [one["attributes"].get("options", []) for one in fields(form)]
    for distinct in (ids, labels, *choices):
        assert len(set(distinct)) == len(distinct)
    assert all("None" not in options for options in choices), "GitHub adds this option itself"


def test_the_gpu_report_asks_for_what_validate_prints() -> None:
    form = yaml.safe_load((ROOT / ".github/ISSUE_TEMPLATE/gpu-report.yml").read_text())
    required = {one["id"] for one in fields(form) if one.get("validations", {}).get("required")}
    assert required == {"gpu", "wheel", "outcome", "report"}
    (outcome,) = [one for one in fields(form) if one["id"] == "outcome"]
    printed = (ROOT / "docs/how-to/prove-it-on-a-gpu.md").read_text()
    for option in outcome["attributes"]["options"][:3]:
        assert f"`{option}" in printed
    page = (ROOT / "docs/how-to/report-your-gpu.md").read_text()
    (commands,) = re.findall(r"```bash\n(.*?)```", page, re.DOTALL)
    assert commands.count("./factory validate") == 1, "it takes minutes"
    assert "--json > report.json" in commands
