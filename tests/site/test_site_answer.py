"""Answers to wheel requests: the lines that install it, why it cannot be, that it is queued, or what was not clear."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from report_rows import code_lines, rows_of, shown, tokens
from wheelfactory.core.checkout import MATRIX
from wheelfactory.matrix.expand import expand
from wheelfactory.matrix.load import load_matrix
from wheelfactory.release.manifest import WheelRow
from wheelfactory.site.answer import answer

CK, OTHER_PYTHON, TRITON, OLDER, ELSEWHERE = PUBLISHED = (
    "fa2.8.3.post2-rocm6.4-torch2.9.1-cp311-ck",
    "fa2.8.3.post2-rocm6.4-torch2.9.1-cp312-ck",
    "fa2.8.3.post2-rocm6.4-torch2.9.1-py3-triton",
    "fa2.8.3-rocm6.4-torch2.9.1-cp311-ck",
    "fa2.8.3.post2-rocm7.2-torch2.13.0-cp311-ck",
)
YANKED = "fa2.7.4.post1-rocm6.4-torch2.9.1-cp311-ck"
SITE = "https://wheels.example"
PIP = f"pip install --index-url {SITE}/simple"

MATRIX_FACTS = load_matrix(MATRIX)
EXPANSION = expand(MATRIX_FACTS)

Ask = Callable[..., str]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> tuple[WheelRow, ...]:
    folder = tmp_path_factory.mktemp("wheels")
    return (*rows_of(folder, PUBLISHED), *rows_of(folder, [YANKED], yanked="wrong numbers, says @tester"))


@pytest.fixture(scope="module")
def ask(rows: tuple[WheelRow, ...]) -> Ask:
    """Gives the answer to a form with these fields; a dash is written as an underscore."""

    def asked(**fields: str) -> str:
        body = "".join(f"### {name.replace('_', '-')}\n\n{value}\n\n" for name, value in fields.items())
        return answer(MATRIX_FACTS, EXPANSION, rows, body, SITE)

    return asked


def installs(text: str) -> list[str]:
    """The install lines without what they are for."""
    return [line.partition(" #")[0] for line in code_lines(text)]


def test_what_exists_is_answered_with_its_install_line(ask: Ask) -> None:
    text = ask(torch="2.9.1+rocm6.4", Python="Python 3.11.7", GPU="MI300X", flash_attn="2.8.3", Backend="ck")
    assert "**It exists.**" in text
    assert code_lines(text) == [f"{PIP}/rocm64/torch2.9/ck/ flash-attn==2.8.3 # ck, Python 3.11, gfx90a gfx942"]


def test_of_what_was_not_asked_the_newest_release_and_every_backend_are_shown(ask: Ask) -> None:
    text = ask(torch="2.9.1+rocm6.4")
    assert installs(text) == [
        f"{PIP}/rocm64/torch2.9/{backend}/ flash-attn==2.8.3.post2" for backend in ("ck", "triton")
    ]
    assert "# ck, Python 3.11, 3.12, gfx90a gfx942" in text


def test_what_is_not_built_yet_is_queued(ask: Ask) -> None:
    text = ask(torch="2.9.1+rocm6.4", Python="3.13", Backend="ck")
    assert "**Queued**" in text
    assert "fa2.8.3.post2-rocm6.4-torch2.9.1-cp313-ck" in text
    assert "fa2.8.3-rocm6.4" not in text
    assert code_lines(text) == []


def test_a_request_may_be_in_part_there_and_in_part_queued(ask: Ask) -> None:
    text = ask(torch="2.9.1+rocm6.4", Python="3.11", flash_attn="2.8.3")
    assert installs(text) == [f"{PIP}/rocm64/torch2.9/ck/ flash-attn==2.8.3"]
    assert text.index("**It exists.**") < text.index("**Queued**") < text.index("fa2.8.3-rocm6.4-torch2.9.1-py3-triton")


def test_a_long_queue_is_counted(ask: Ask) -> None:
    text = ask(torch="2.8", flash_attn="2.8")
    listed = [line for line in text.splitlines() if line.startswith("- `fa")]
    total = sum(cell.torch == "2.8.0" and cell.flash_attn.startswith("2.8") for cell in EXPANSION.cells)
    assert len(listed) == 12
    assert f"- and {total - 12} more" in text


def test_a_yanked_wheel_is_told_with_the_reason(ask: Ask) -> None:
    text = ask(torch="2.9.1+rocm6.4", flash_attn="2.7.4.post1", Python="3.11", Backend="ck")
    assert "**Yanked**" in text
    assert f"{YANKED}: wrong numbers, says @tester" in shown(text)
    assert "@tester" not in text
    assert code_lines(text) == []


def test_what_cannot_be_is_answered_with_the_reason_of_the_matrix_and_the_nearest(ask: Ask) -> None:
    text = ask(torch="2.9.1", ROCm="7.2", Python="3.11", Backend="ck", flash_attn="2.8.3.post2")
    assert "**It cannot be built.**" in text
    assert "- torch 2.9.1 is not on the ROCm 7.2 index; it is on 6.4, 6.3" in text
    assert installs(text)[0] == f"{PIP}/rocm64/torch2.9/ck/ flash-attn==2.8.3.post2"


def test_a_gpu_without_kernels_is_the_reason_and_another_backend_the_nearest(ask: Ask) -> None:
    text = ask(torch="2.9.1+rocm6.4", GPU="RX 7900 XTX", Backend="ck", flash_attn="2.8.3.post2")
    assert "flash-attn 2.8.3.post2 ck for ROCm 6.4 has no kernels for gfx1100; it has gfx90a, gfx942" in shown(text)
    assert installs(text) == [f"{PIP}/rocm64/torch2.9/triton/ flash-attn==2.8.3.post2"]


def test_a_gpu_picks_the_backend_that_has_it(ask: Ask) -> None:
    assert installs(ask(torch="2.9.1+rocm6.4", GPU="gfx1100")) == [
        f"{PIP}/rocm64/torch2.9/triton/ flash-attn==2.8.3.post2"
    ]


@pytest.mark.parametrize(
    ("torch", "nearest"),
    [("2.15.0", "rocm72/torch2.13"), ("2.4.0", "rocm64/torch2.9")],
    ids=["too new", "too old"],
)
def test_a_version_that_is_not_in_the_matrix_is_told_with_the_nearest_that_is(
    ask: Ask, torch: str, nearest: str
) -> None:
    text = ask(torch=torch, Python="3.11", Backend="ck", flash_attn="2.8.3.post2")
    assert "**Not in the matrix.**" in text
    assert f"- torch {torch} is not in the matrix, which has 2.14.1, 2.13.0" in text
    assert installs(text)[0] == f"{PIP}/{nearest}/ck/ flash-attn==2.8.3.post2"


def test_without_any_wheel_the_nearest_that_will_be_built_is_named() -> None:
    body = "### torch\n\n2.9.1\n\n### ROCm\n\n7.2\n\n### Python\n\n3.12\n\n### Backend\n\nck"
    text = answer(MATRIX_FACTS, EXPANSION, (), body, SITE)
    assert "Nearest that will be built:" in text
    first = next(line for line in text.splitlines() if line.startswith("- `"))
    assert first == "- `fa2.8.3.post2-rocm6.4-torch2.9.1-cp312-ck`"


def test_without_indexes_each_wheel_is_installed_by_its_address(rows: tuple[WheelRow, ...]) -> None:
    there = [row.model_copy(update={"url": f"https://host.example/{row.sha256[:4]}.whl"}) for row in rows]
    text = answer(MATRIX_FACTS, EXPANSION, there, "### torch\n\n2.9.1\n\n### Backend\n\nck", None)
    assert installs(text) == [
        f"pip install --no-deps einops 'https://host.example/{row.sha256[:4]}.whl#sha256={row.sha256}'"
        for row in rows[:2]
    ]


def test_it_says_how_the_request_was_read(ask: Ask) -> None:
    text = ask(torch="2.9.0+rocm6.4.1", Python="cp311", GPU="MI300X", flash_attn="2.8", Backend="ck")
    assert shown(text).startswith(
        "Read as: torch 2.9.1, ROCm 6.4, Python 3.11, GPU gfx942 (Instinct MI300A, MI300X, MI308X, MI325X), "
        "flash-attn 2.8.3.post2 or 2.8.3, Backend ck."
    )


def test_what_is_not_clear_is_asked_back_with_the_known_values(ask: Ask) -> None:
    text = ask(torch="the one I have", ROCm="6.4", Python="3")
    assert text.startswith("**Not understood.**")
    assert "- Field `torch`: no version is in it. Known: 2.14.1, 2.13.0, " in text
    assert "- Field `Python`: no version is in it. Known: 3.14, 3.13, 3.12, 3.11, 3.10" in text
    assert "Field `ROCm`" not in text


def test_an_issue_without_the_form_is_asked_for_torch(ask: Ask) -> None:
    assert "- Field `torch`: it is needed, because a wheel fits one torch." in ask(Something="else")


HOSTILE = "@admin #1 [a](http://evil.example) <script>x</script> ``` ![i](http://evil.example/i) | `"


@pytest.mark.parametrize("field", ["torch", "ROCm", "Python", "GPU", "flash_attn", "Backend"])
def test_no_text_of_a_request_is_repeated(ask: Ask, field: str) -> None:
    for given_text in (HOSTILE, f"2.9.1 {HOSTILE}", HOSTILE * 2_000):
        text = ask(**{"torch": "2.9.1", field: given_text})
        assert not any(word in text for word in ("admin", "evil", "script", "#1", "!["))
        assert "link_open" not in [token.type for token in tokens(text)]


BODY = st.text(st.sampled_from("# torchROCmPythnGU\n2.91038+@<>[]()`|!x_"), max_size=300)


@settings(max_examples=100, deadline=None)
@given(BODY, BODY)
@example("2.9.1`", "``` @x <b>")
def test_any_body_has_an_answer_without_links_mentions_or_html(torch: str, python: str) -> None:
    text = answer(MATRIX_FACTS, EXPANSION, (), f"### torch\n\n{torch}\n\n### Python\n\n{python}\n", None)
    kinds = {token.type for token in tokens(text)}
    assert not kinds & {"link_open", "image", "html_inline", "html_block"}
    assert "@" not in text
    assert text.startswith(("**Not understood.**", "Read as: "))
