"""The checkers find nothing in our workflows; and each finds what it must in workflows with one defect each.

Without the second the first says nothing: a checker that does not run, or looks at no file, is content with everything.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

from wheelfactory.core.checkout import MATRIX
from workflows.checkers import CHECKERS, Finding, NothingCheckedError, zizmor
from workflows.definition import FOLDER
from workflows.document import WorkflowError
from workflows.events import push
from workflows.expressions import Expressions
from workflows.house_rules import RULES, check_house
from workflows.runner import Place, run_workflow

TREE = MATRIX.parent
CORPUS = Path(__file__).parents[1] / "data/workflow_defects"

SERVICE, LINT, ZIZMOR, SHELL, HOUSE, RUNNER = (
    "language service",
    "actionlint",
    "zizmor",
    "shellcheck",
    "house",
    "runner",
)

MUST: Mapping[str, Mapping[str, str]] = {
    "action-by-tag": {ZIZMOR: "unpinned-uses", HOUSE: "actions by commit"},
    "action-without-version": {HOUSE: "actions by commit"},
    "build-with-rights": {HOUSE: "jobs with rights build nothing"},
    "build-with-secret": {ZIZMOR: "secrets-outside-env", HOUSE: "jobs with rights build nothing"},
    "cache-where-published": {ZIZMOR: "cache-poisoning", HOUSE: "jobs with rights restore no cache"},
    "call-of-nothing": {SERVICE: "Unable to find reusable workflow", RUNNER: "there is no such file"},
    "call-with-other-input": {SERVICE: "other is not defined", RUNNER: "has no input other"},
    "call-with-steps": {SERVICE: "timeout-minutes", LINT: "timeout-minutes", RUNNER: "timeout-minutes"},
    "call-with-wrong-type": {RUNNER: "is a boolean, not 'perhaps'"},
    "call-without-input": {SERVICE: "Input text is required", RUNNER: "requires the input text"},
    "checkout-keeps-token": {ZIZMOR: "artipacked", HOUSE: "checkouts keep no token"},
    "context-not-there": {SERVICE: "'env'", LINT: '"env" is not allowed here'},
    "context-unknown": {SERVICE: "githb", LINT: "githb", RUNNER: "githb"},
    "cron": {SERVICE: "Invalid cron", LINT: "61"},
    "environment-of-strangers": {ZIZMOR: "github-env", HOUSE: "no event with the rights of others"},
    "event-with-rights-of-others": {ZIZMOR: "dangerous-triggers", HOUSE: "no event with the rights of others"},
    "expression-in-script": {
        LINT: "potentially untrusted",
        ZIZMOR: "template-injection",
        SHELL: "SC2296",
        HOUSE: "no expression in a script",
    },
    "expression-syntax": {
        SERVICE: "Unexpected end of expression",
        LINT: "unexpected end of input",
        RUNNER: "end of expression",
    },
    "fail-fast": {HOUSE: "a failure leaves other cells alone"},
    "function-arguments": {SERVICE: "Too few parameters", LINT: "number of arguments", RUNNER: "Too few parameters"},
    "function-unknown": {SERVICE: "tolower", LINT: "tolower", RUNNER: "tolower"},
    "gpu-of-the-host": {HOUSE: "no gpu of the host"},
    "if-always-true": {
        SERVICE: "always evaluate to truthy",
        LINT: "always evaluated to true",
        ZIZMOR: "unsound-condition",
        RUNNER: "always true",
    },
    "image-by-tag": {ZIZMOR: "unpinned-images"},
    "indentation": {SERVICE: "same column", LINT: "could not parse", ZIZMOR: "failed to load", RUNNER: "mapping"},
    "key-misspelt": {SERVICE: "'step'", LINT: '"step"', ZIZMOR: "failed to load", RUNNER: "needs steps"},
    "key-twice": {SERVICE: "already defined", LINT: "duplicated", ZIZMOR: "failed to load", RUNNER: "twice"},
    "matrix-key-unknown": {SERVICE: "di", LINT: '"di"'},
    "matrix-too-large": {RUNNER: "272 configurations"},
    "needs-cycle": {SERVICE: "no dependencies", LINT: "cyclic", RUNNER: "need each other"},
    "needs-unknown": {SERVICE: "'other'", LINT: '"other" which does not exist', RUNNER: "needs other"},
    "no-name": {HOUSE: "everything has a name"},
    "no-timeout": {HOUSE: "every job ends"},
    "output-misspelt": {SERVICE: "nmuber", LINT: "nmuber"},
    "permission-unknown": {SERVICE: "content", LINT: "content", RUNNER: "no permission content"},
    "permissions-escalated": {RUNNER: "may have packages: none"},
    "permissions-missing": {ZIZMOR: "excessive-permissions", HOUSE: "nothing granted on top"},
    "permissions-on-top": {ZIZMOR: "excessive-permissions", HOUSE: "nothing granted on top"},
    "releases-written": {HOUSE: "only these jobs write releases"},
    "runner-misspelt": {LINT: "ubuntu-24.4"},
    "script-syntax": {SHELL: "SC1046", HOUSE: "one command a step"},
    "script-unquoted": {SHELL: "SC2086"},
    "script-variable-misspelt": {SHELL: "SC2154 NAEM"},
    "secrets-inherited": {ZIZMOR: "secrets-inherit", RUNNER: "secrets are not handed on"},
    "step-id-unknown": {SERVICE: "other", LINT: '"other"'},
    "two-commands": {HOUSE: "one command a step"},
    "two-commands-in-a-line": {HOUSE: "one command a step"},
}
"""What each checker must say of each defect; it may say more."""

UNREADABLE = frozenset(name for name, said in MUST.items() if said.get(ZIZMOR) == "failed to load")
"""zizmor looks at nothing as long as one of these is there; and two of them our own rules cannot read either."""


def make_tree(folder: Path, defects: Collection[str]) -> Path:
    """A tree with the good files and those with these defects."""
    (folder / FOLDER).mkdir(parents=True)
    (folder / ".github/actions/greet").mkdir(parents=True)
    for path in (CORPUS / "good").iterdir():
        shutil.copy(path, folder / (".github/actions/greet" if path.name == "action.yml" else FOLDER))
    for name in defects:
        shutil.copy(CORPUS / f"{name}.defect", folder / FOLDER / f"{name}.yml")
    shutil.copy(TREE / ".github/zizmor.yml", folder / ".github")
    return folder


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, list[Finding]]:
    """What each checker says of all defects; of those that keep it from reading the others, by themselves."""
    every = make_tree(tmp_path_factory.mktemp("every"), MUST)
    readable = make_tree(tmp_path_factory.mktemp("readable"), MUST.keys() - UNREADABLE)
    found = {name: checker(every) for name, checker in CHECKERS.items() if name in (SERVICE, LINT)}
    found |= {SHELL: CHECKERS[SHELL](readable), ZIZMOR: zizmor(readable), HOUSE: check_house(readable)}
    for name in sorted(UNREADABLE):
        alone = zizmor(make_tree(tmp_path_factory.mktemp(name), [name]))
        found[ZIZMOR] += [Finding(f"{FOLDER}/{name}.yml", 0, one.message) for one in alone]
    return found


@pytest.mark.parametrize(("checker", "name"), [(one, name) for name in MUST for one in MUST[name] if one != RUNNER])
def test_a_checker_finds_a_defect(said: Mapping[str, list[Finding]], checker: str, name: str) -> None:
    here = [one.message for one in said[checker] if one.file == f"{FOLDER}/{name}.yml"]
    assert any(MUST[name][checker] in message for message in here), here


@pytest.mark.parametrize("name", [name for name in MUST if RUNNER in MUST[name]])
def test_the_runner_finds_a_defect(tmp_path: Path, evaluator: Expressions, name: str) -> None:
    place = Place(make_tree(tmp_path / "tree", [name]), tmp_path / "place", evaluator)
    try:
        run = run_workflow(place, f"{name}.yml", push(), unexecuted=["one", "one/say"])
    except WorkflowError as error:
        assert MUST[name][RUNNER] in str(error)
    else:
        assert run.result == "failure"
        assert MUST[name][RUNNER] in run.said()


def test_there_is_nothing_to_find_in_the_good_files(said: Mapping[str, list[Finding]]) -> None:
    good = {f"{FOLDER}/{path.name}" for path in (CORPUS / "good").iterdir()} | {".github/actions/greet/action.yml"}
    assert {name: [one for one in found if one.file in good] for name, found in said.items()} == {
        name: [] for name in said
    }


def test_every_defect_of_the_corpus_is_in_the_table_and_someone_must_find_it() -> None:
    assert {path.stem for path in CORPUS.glob("*.defect")} == set(MUST)
    assert all(MUST.values())


def test_every_rule_of_the_house_has_a_defect_that_breaks_it() -> None:
    assert {one[HOUSE] for one in MUST.values() if HOUSE in one} == set(RULES)


@pytest.mark.parametrize("checker", [*CHECKERS.values(), check_house], ids=[*CHECKERS, HOUSE])
def test_no_file_is_an_error(checker: object, tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir(parents=True)
    assert callable(checker)
    with pytest.raises(NothingCheckedError):
        checker(tmp_path)


@pytest.mark.parametrize("checker", [*CHECKERS, HOUSE])
def test_our_workflows_and_actions(checker: str) -> None:
    assert (check_house if checker == HOUSE else CHECKERS[checker])(TREE) == []
