"""How the checkers read jobs and steps: scripts, artifacts, paths, calls and lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from workflows.elements import Element, fixed_parts, read_element, steps, with_called


def step(**content: object) -> Element:
    """Return a step that comes from no file."""
    return Element(Path(), "", {}, {}, content, "one")


@pytest.mark.parametrize(
    ("script", "operators"),
    [
        ('echo \'a | b\' "c; \\" && d"', set()),
        ("make > log 2>&1", {">", ">&"}),
        ("one || two", {"||"}),
        ("one \\\n two", set()),
        ("one\ntwo", {"\n"}),
    ],
)
def test_operators_are_those_outside_quotes(script: str, operators: set[str]) -> None:
    assert step(run=script).operators == operators


def test_an_artifact_name_has_wildcards_for_expressions() -> None:
    name = "wheel-${{ matrix.id }}-${{ github.run_id }}"
    assert step(uses="actions/upload-artifact@v1", **{"with": {"name": name}}).artifact == "wheel-*-*"
    assert step(uses="actions/upload-artifact@v1").artifact == "artifact"
    assert step(uses="actions/download-artifact@v1").artifact == "*"
    assert step(uses="actions/download-artifact@v1", **{"with": {"pattern": "rows-*"}}).artifact == "rows-*"


def test_paths_are_those_of_artifacts_and_of_conditions() -> None:
    inputs = {"path": "dist/*.whl\n!dist/old\n  log\n"}
    upload = step(uses="actions/upload-artifact@v1", **{"with": inputs, "if": "hashFiles('a/b', 'c') != ''"})
    assert upload.paths == ["dist/*.whl", "log", "a/b", "c"]
    assert step(uses="actions/checkout@v1", **{"with": {"path": "sources"}}).paths == []


def test_a_path_is_compared_up_to_its_first_wildcard_or_variable() -> None:
    assert fixed_parts("./cells/*/manifest.jsonl") == ["cells"]
    assert fixed_parts("cell/$CELL") == ["cell"]
    assert fixed_parts("${{ runner.temp }}/a") == []


def test_steps_know_their_job_and_line_and_are_followed_by_what_they_call(tmp_path: Path) -> None:
    for name, text in {
        ".github/workflows/a.yml": "jobs:\n  one:\n    uses: ./.github/workflows/b.yml\n",
        ".github/workflows/b.yml": "jobs:\n  two:\n    steps:\n      - uses: ./.github/actions/c\n      - run: x\n",
        ".github/actions/c/action.yml": "runs:\n  steps:\n    - name: y\n      run: z\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = list(with_called(steps(read_element(tmp_path, ".github/workflows/a.yml"))))
    assert [(Path(one.path).name, one.job, one.title, one.line(one.title)) for one in found] == [
        ("a.yml", "one", "./.github/workflows/b.yml", 3),
        ("b.yml", "two", "./.github/actions/c", 4),
        ("action.yml", "runs", "z", 4),
        ("b.yml", "two", "x", 5),
    ]
