"""A wheel request -> the address of the search page: its query has the fields of the form and nothing else."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from report_rows import tokens
from wheelfactory.commands.ci.answer import FIELDS, read_request, search_link
from wheelfactory.core.cell import Backend
from wheelfactory.core.files import ROOT

SITE = "https://wheels.example/rocm"
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
    assert read_request(BODY) == {"torch": "2.9.1+rocm6.4", "python": "3.12", "gpu": "MI300X"}


def test_other_text_is_ignored() -> None:
    cases: list[tuple[str, dict[str, str]]] = [
        ("", {}),  # empty
        ("please build a wheel", {}),  # free text
        ("### Operating system\n\nLinux\n", {}),  # other field
        ("### torch\n\n### Python\n\n3.12", {"python": "3.12"}),  # no value
        ("### torch\n\n2.9.1\n\n### torch\n\n2.8.0", {"torch": "2.9.1"}),  # twice
        ("### torch\r\n\r\n2.9.1\r\nand more\r\n", {"torch": "2.9.1"}),  # two lines, with a browser's ends
        ("#### torch\n\n2.9.1", {}),  # other level
        ("### Backend\n\neither", {}),  # any backend
    ]
    for body, fields in cases:
        assert read_request(body) == fields


def test_a_huge_body_is_read_to_its_limit() -> None:
    assert read_request("### torch\n\n" + "9" * 10**7) == {"torch": "9" * 200}
    assert read_request("\n" * 10**6 + "### torch\n\n2.9.1") == {}


def query(link: str) -> dict[str, list[str]]:
    """The query of an autolink, which is all that a text has."""
    assert link.startswith("<") and link.endswith(">")
    return parse_qs(urlsplit(link[1:-1]).query)


def test_the_answer_is_the_search_page_with_the_fields_as_its_query() -> None:
    assert search_link(SITE, BODY) == f"<{SITE}/?torch=2.9.1%2Brocm6.4&python=3.12&gpu=MI300X>"
    assert search_link(f"{SITE}/", "") == f"<{SITE}/>"


def test_the_page_of_this_machine_is_named_as_a_file_because_a_browser_would_list_the_folder() -> None:
    assert search_link("file:///wheelhouse", "### GPU\n\nRX 7900 XTX") == (
        "<file:///wheelhouse/index.html?gpu=RX%207900%20XTX>"
    )


HOSTILE = "@admin #1 [a](http://evil.example) <script>x</script>``` ![i](http://evil.example/i) | `> &gpu=x \ud800"


def test_whatever_a_field_holds_is_one_value_of_one_link() -> None:
    for field in FIELDS:
        link = search_link(SITE, f"### {field}\n\n{HOSTILE}")
        assert query(link) == {field: [HOSTILE.replace("\ud800", "?")]}
        assert [token.type for token in tokens(link) if token.type.startswith(("link", "html", "image"))] == [
            "link_open",
            "link_close",
        ]


@settings(max_examples=100)
@given(st.text(st.sampled_from("# \ntorchROCmGPU2.9+@<>[]()`|!_~*&=?%\u202e"), max_size=300))
@example("2.9.1>\n\n<b>")
def test_any_body_is_answered_with_one_link_to_the_site(text: str) -> None:
    link = search_link(SITE, f"### torch\n\n{text}\n\n### Python\n\n3.12\n")
    assert link.startswith(f"<{SITE}/?")
    assert set(query(link)) <= set(FIELDS)
    assert [token.type for token in tokens(link)] == [
        *("paragraph_open", "inline", "link_open", "text", "link_close", "paragraph_close")
    ]


def test_the_form_asks_for_exactly_the_fields_that_are_read_and_only_torch_must_be_filled_in() -> None:
    form = yaml.safe_load(FORM.read_text())
    assert sorted(item["id"] for item in form["body"]) == sorted(FIELDS)
    assert [item["attributes"]["label"].lower() for item in form["body"]] == [item["id"] for item in form["body"]]
    assert form["labels"] == ["wheel-request"]
    required = [item["id"] for item in form["body"] if item.get("validations", {}).get("required")]
    assert required == ["torch"]
    choices = {item["id"]: item["attributes"]["options"] for item in form["body"] if item["type"] == "dropdown"}
    assert choices == {"backend": ["either", *map(str, Backend)]}, "no version, which would go out of date"
