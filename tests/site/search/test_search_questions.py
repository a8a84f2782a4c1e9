"""Sixty questions, put to the page and to the doctor: both give the answer that a maintainer would give."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any
from urllib.parse import urlencode

import pytest

from doctor.known import FACTS, KNOWN
from page_rule import PageRule
from questions import NOT, QUESTIONS, WORKS, Question
from search_rows import row_of
from wheelfactory.core.cell import Backend
from wheelfactory.core.support import Answer
from wheelfactory.doctor.advice import find_answer, is_other_build, machine_choices
from wheelfactory.doctor.gpu_match import judge_gpus
from wheelfactory.doctor.machine import InstalledTorch, Machine, Python
from wheelfactory.matrix.expand import expand
from wheelfactory.matrix.facts import Matrix
from wheelfactory.matrix.rules import AXES
from wheelfactory.site.search_data import search_data

ASK = """(model, query) => {
    const choices = factory.choicesOf(model, factory.readState(model, query));
    const [wheel] = factory.find(model, choices, "", false).wheels;
    return { choices, ...factory.support(model, choices), wheel: wheel?.version || "" };
}"""


@pytest.fixture(scope="module")
def page(matrix: Matrix) -> PageRule:
    """The rule of the page, with a wheel for each cell of the matrix."""
    return PageRule(search_data(matrix, [row_of(matrix, cell) for cell in expand(matrix).cells], docs=False))


WRITTEN = {
    "torch=2.9": {"torch": "2.9.1"},
    "torch=2.9.0": {"torch": "2.9.1"},
    "torch=2.9.0%2Brocm6.4": {"torch": "2.9.1", "rocm": "6.4"},
    "torch=2.5.1%2Brocm6.2.4": {"torch": "2.5.1", "rocm": "6.2.4"},
    "torch=2.9.1%2Brocm6.4&rocm=7.2": {"torch": "2.9.1", "rocm": "7.2"},
    "torch=torch 2.10.0.dev20260101%2Brocm7.1": {"torch": "2.10.0", "rocm": "7.1"},
    "torch=2.9.1%2Bcu128": {"torch": "2.9.1+cu128"},
    "torch=2.9.1%2Bcpu": {"torch": "2.9.1+cpu"},
    "torch=2": {"torch": "2"},
    "rocm=HIP 6.4.43482": {"rocm": "6.4"},
    "rocm=6.2.41134": {"rocm": "6.2"},
    "python=Python 3.12.7": {"python": "3.12"},
    "python=3.13t": {"python": "3.13t"},
    "flash-attn=v2.8.3": {"flash-attn": "2.8.3"},
    "flash-attn=2.8.4": {"flash-attn": "2.8.4"},
    "flash-attn=2.8.3.1": {"flash-attn": "2.8.3.1"},
    "backend=Triton": {"backend": "triton"},
}
"""Choices in an address, as people and programs write them, and as the page reads them."""


def test_a_choice_in_the_address_is_read_as_people_and_programs_write_it(page: PageRule) -> None:
    states = page.ask("(model, query) => factory.readState(model, query)", [*WRITTEN])
    found = [{axis: state[axis] for axis in AXES if axis in state} for state in states]
    assert dict(zip(WRITTEN, found, strict=True)) == WRITTEN


@pytest.fixture(scope="module")
def answers(page: PageRule) -> Mapping[Question, dict[str, Any]]:
    """All questions, put to the page at once."""
    names = ("gpu", "rocm", "torch", "python", "backend")
    queries = [urlencode(dict(zip(names, question, strict=False))) for question in QUESTIONS]
    return dict(zip(QUESTIONS, page.ask(ASK, queries), strict=True))


def test_a_torch_that_no_wheel_can_be_for_is_not_offered_instead_of_another(page: PageRule) -> None:
    asked = [f"torch={torch}" for torch in ("2.4", "2.13.0%2Bcu128", *KNOWN.torch)]
    old, cuda, *known = page.ask(ASK, asked)
    served = [torch for torch, found in zip(KNOWN.torch, known, strict=True) if found["answer"] != NOT]
    assert old["reasons"] == [f"no wheels for torch 2.4; available: {', '.join(served)}"]
    assert cuda["reasons"] == ["torch 2.13.0+cu128 is not built for ROCm; install one that is first"]


def test_a_wheel_for_amds_torch_is_offered_without_a_torch_to_those_who_have_it(page: PageRule) -> None:
    amds = "torch=2.9.1%2Brocm7.2.4.git0123abc&python=3.10&gpu=gfx942"
    labels = {
        amds: "rocm72torch2.9amd",
        f"{amds}&backend=ck": "rocm72torch2.9amd",
        "torch=2.13.0%2Brocm7.2&python=3.10&gpu=gfx942": "rocm72torch2.13",
        "rocm=7.2&python=3.10&gpu=gfx942": "rocm72torch2.13",
        "rocm=7.1&torch=2.10.0&python=3.10&gpu=gfx942": "rocm71torch2.10",
    }
    found = page.ask(ASK, [*labels])
    assert [one["wheel"].partition("+")[2] for one in found] == [*labels.values()]
    (titles,) = page.ask(
        """(model) => {
            const wheel = model.wheels.find((wheel) => wheel.amdTorch);
            return factory.formsOf(model, "https://example.org/", [wheel]).map(([name, steps]) => [name, steps.length]);
        }""",
        [None],
    )
    assert titles == [["pip", 1], ["uv", 1], ["URL", 1]]


def test_an_address_is_quoted_for_the_shell_where_it_needs_to_be(page: PageRule) -> None:
    wheel = '{ index: "simple/x", version: "1+a", pythons: [], url: "x" }'
    sites = {"https://example.org/a/": "https://example.org/a/simple/x/"}
    sites["https://example.org/it's&b/"] = "'https://example.org/it'\\''s&b/simple/x/'"
    found = page.ask(f"(model, site) => factory.formsOf(model, site, [{wheel}])", [*sites])
    for forms, shown in zip(map(dict, found), sites.values(), strict=True):
        assert forms["pip"] == [["flash-attn", f"pip install --index-url {shown} flash-attn==1+a"]]
        assert forms["uv"] == [["flash-attn", f"uv pip install --default-index {shown} flash-attn==1+a"]]


def test_the_page_gives_the_answer_of_a_maintainer_to_sixty_questions(
    answers: Mapping[Question, dict[str, Any]],
) -> None:
    assert len(set(QUESTIONS)) == len(QUESTIONS) >= 60
    for question, found in answers.items():
        assert found["choices"].get("gpu", "") == question.arch, question
        if question.arch:  # otherwise it asks which GPU is meant
            assert found["answer"] == question.answer, question
            assert bool(found["reasons"]) == (question.answer != WORKS)
            assert question.reason in (found["reasons"] or [""])[0]
            assert bool(found["wheel"]) == (question.answer != NOT), question
            assert not found["wheel"] or minor(question.torch) in found["wheel"], "a wheel for that torch"


def minor(torch: str) -> str:
    """The part of a wheel's label that names a torch."""
    return f"torch{'.'.join(torch.split('.')[:2])}" if torch else ""


def machine_of(question: Question) -> Machine:
    """The machine of a user with such a question: its torch is a build for that ROCm, if either is named."""
    python = question.python or "3.12"
    rocm, torch = question.rocm, question.torch
    version = torch if "+" in torch else f"{torch}+rocm{rocm}"
    build = InstalledTorch(version, hip=f"{rocm}.0") if rocm and torch else None
    tag = f"cp{python.replace('.', '')}"
    return Machine(
        Python("/venv/bin/python", f"{python}.1", tag, glibc="2.36", pip="25.0"), build, gpus=(question.arch,)
    )


@pytest.mark.parametrize(
    "question",
    # a machine has a Python, and a torch has a ROCm
    [question for question in QUESTIONS if question.arch and bool(question.rocm) == bool(question.torch)],
    ids=lambda question: " ".join(filter(None, question[:5])),
)
def test_the_doctor_gives_the_same_answer_on_such_a_machine(question: Question) -> None:
    machine, backend = machine_of(question), Backend(question.backend) if question.backend else None
    assert str(find_answer(machine, FACTS, backend)) == question.answer
    (choices,) = machine_choices(machine, FACTS, backend=backend)
    reasons = FACTS.support.find_user_support(choices, other_build=is_other_build(machine)).reasons
    assert question.reason in (reasons or ("",))[0]
    if not question.rocm and not question.backend and not question.python:  # what its line "Support" says
        (support,) = judge_gpus(machine, FACTS)
        stated = [Answer(answer.partition(":")[0]) for answer in support.answers.values()]
        assert str(min(stated, key=list(Answer).index)) == question.answer


def gpus_that_differ() -> list[str]:
    """The first GPU of each kind that the rules tell apart; the others have another name alone."""
    support = FACTS.support
    gpus, answers = support.axes["gpu"], [finding.answer if finding else None for finding in support.findings]
    tables = [table.positions for table in support.tables if table.axes[-1] == "gpu"]
    kinds: dict[tuple[Answer | None, ...], str] = {}
    for number, gpu in enumerate(gpus):
        column = (answers[position] for positions in tables for position in positions[number :: len(gpus)])
        kinds.setdefault(tuple(column), gpu)
    return list(kinds.values())


@pytest.mark.slow
def test_page_and_doctor_answer_alike_for_every_kind_of_gpu_with_every_version(page: PageRule) -> None:
    """With every ROCm, torch, Python and backend, and with each of them left open."""
    axes = FACTS.support.axes
    some = [
        {"gpu": gpu, **({"rocm": rocm} if rocm else {}), **({"backend": backend} if backend else {}), **rest}
        for gpu, rocm, backend in product(
            gpus_that_differ(), ("", "10.0", "7.1.1", *axes["rocm"]), ("", "ck", "triton")
        )
        for rest in ({}, {"torch": "2.14.1", "python": "3.12"}, {"flash-attn": "2.6.3", "torch": "2.5.1"})
    ]
    found = page.ask("(model, choices) => Object.values(factory.support(model, choices))", some)
    for choices, (answer, reasons) in zip(some, found, strict=True):
        support = FACTS.support.find_user_support(choices)
        assert (str(support.answer), list(support.reasons)) == (answer, reasons), choices
