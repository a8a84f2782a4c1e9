"""Sixty questions, put to the page and to the doctor: both give the answer that a maintainer would give."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from doctor.known import FACTS
from questions import QUESTIONS, WORKS, Question
from search_page import Visitor
from wheelfactory.core.cell import Backend
from wheelfactory.core.support import Answer
from wheelfactory.doctor.advice import find_answer, machine_choices
from wheelfactory.doctor.gpu_match import judge_gpus
from wheelfactory.doctor.machine import InstalledTorch, Machine, Python

pytestmark = pytest.mark.slow

ASK = """(queries) => {
    const factory = globalThis.wheelfactory;
    const model = factory.makeModel(globalThis.wheelfactoryData);
    return queries.map((query) => {
        const choices = factory.choicesOf(model, factory.readState(model, query));
        return { choices, ...factory.support(model, choices) };
    });
}"""


@dataclass(frozen=True)
class PageAnswers:
    """The answers of the page, by question."""

    found: Mapping[Question, dict[str, Any]]


@pytest.fixture(scope="module")
def page(browser: Browser, site: str) -> Iterator[Page]:
    """One page for all questions."""
    visitor = Visitor(browser, site)
    yield visitor.open()
    visitor.close()


@pytest.fixture(scope="module")
def answers(page: Page) -> PageAnswers:
    """All questions, put to the page at once."""
    names = ("gpu", "rocm", "torch", "python", "backend")
    queries = [
        "&".join(f"{name}={value}" for name, value in zip(names, question, strict=False)) for question in QUESTIONS
    ]
    return PageAnswers(dict(zip(QUESTIONS, page.evaluate(ASK, queries), strict=True)))


def test_there_are_sixty_questions() -> None:
    assert len(set(QUESTIONS)) == len(QUESTIONS) >= 60


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: " ".join(filter(None, question[:5])))
def test_the_page_gives_the_answer_of_a_maintainer(answers: PageAnswers, question: Question) -> None:
    found = answers.found[question]
    assert found["choices"].get("gpu", "") == question.arch
    if question.arch:  # otherwise it asks which GPU is meant
        assert found["answer"] == question.answer
        assert bool(found["reasons"]) == (question.answer != WORKS)
        assert question.reason in (found["reasons"] or [""])[0]


def machine_of(question: Question) -> Machine:
    """The machine of a user with such a question: its torch is a build for that ROCm, if either is named."""
    python = question.python or "3.12"
    rocm, torch = question.rocm, question.torch
    build = InstalledTorch(f"{torch}+rocm{rocm}", hip=f"{rocm}.0") if rocm and torch else None
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
    reasons = FACTS.support.find_support(choices).reasons
    assert question.reason in (reasons or ("",))[0]
    if not question.rocm and not question.backend and not question.python:  # what its line "Support" says
        (support,) = judge_gpus(machine, FACTS)
        stated = [Answer(answer.partition(":")[0]) for answer in support.answers.values()]
        assert str(min(stated, key=list(Answer).index)) == question.answer


def test_page_and_doctor_answer_alike_for_every_gpu_with_every_version(page: Page) -> None:
    """Every GPU with every ROCm, torch, Python and backend, and with each of them left open."""
    axes = FACTS.support.axes
    some = [
        {"gpu": gpu, **({"rocm": rocm} if rocm else {}), **({"backend": backend} if backend else {}), **rest}
        for gpu, rocm, backend in product(axes["gpu"], ("", *axes["rocm"]), ("", *axes["backend"]))
        for rest in ({}, {"torch": "2.14.1", "python": "3.12"}, {"flash-attn": "2.6.3", "torch": "2.5.1"})
    ]
    ask = """(points) => {
        const model = wheelfactory.makeModel(wheelfactoryData);
        return points.map((choices) => Object.values(wheelfactory.support(model, choices)));
    }"""
    found = page.evaluate(ask, some)
    for choices, (answer, reasons) in zip(some, found, strict=True):
        support = FACTS.support.find_support(choices)
        assert (str(support.answer), list(support.reasons)) == (answer, reasons), choices
