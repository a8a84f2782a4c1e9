"""The checkers find no defect in our workflows, and find the known defect in each file of the corpus.

The corpus proves that a checker runs at all: one that reads no file would accept everything.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from refresh.derived import WORKFLOWS
from wheelfactory.cli import MODULES
from wheelfactory.core.files import MATRIX
from workflows.checkers import CHECKERS, Finding, NothingCheckedError, workflow_files, zizmor
from workflows.definition import FOLDER
from workflows.document import WorkflowError
from workflows.events import push
from workflows.expressions import Expressions
from workflows.house_rules import OUTPUTS, RULES, check_house
from workflows.runner import RunnerSetup, run_workflow

TREE = MATRIX.parent
CORPUS = Path(__file__).parents[1] / "data/workflow_defects"

SERVICE, LINT, ZIZMOR, SHELL = CHECKERS
HOUSE, RUNNER = "house", "runner"

EXPECTED: Mapping[str, Mapping[str, str]] = {
    "action-by-tag": {ZIZMOR: "unpinned-uses"},
    "artifact-over-a-checkout": {HOUSE: "privileged jobs take what is sealed"},
    "call-with-wrong-type": {RUNNER: "is a boolean, not 'perhaps'"},
    "call-without-input": {SERVICE: "Input text is required"},
    "context-unknown": {SERVICE: "githb", LINT: "githb", RUNNER: "githb"},
    "expression-in-script": {LINT: "potentially untrusted", ZIZMOR: "template-injection", SHELL: "SC2296"},
    "expression-syntax": {SERVICE: "Unexpected end of", LINT: "unexpected end of input", RUNNER: "end of expression"},
    "fail-fast": {HOUSE: "nothing is left to a default"},
    "failure-hidden-by-any-code": {HOUSE: "one command a step"},
    "failure-hidden-by-shell": {HOUSE: "one command a step"},
    "failure-hidden-by-true": {HOUSE: "one command a step"},
    "foreign-artifact-with-rights": {HOUSE: "privileged jobs take what is sealed"},
    "function-arguments": {SERVICE: "Too few parameters", LINT: "number of arguments", RUNNER: "Too few parameters"},
    "function-unknown": {SERVICE: "tolower", LINT: "tolower", RUNNER: "tolower"},
    "if-always-true": {
        SERVICE: "always evaluate to truthy",
        LINT: "always evaluated to true",
        ZIZMOR: "unsound-condition",
        RUNNER: "always true",
    },
    "indentation": {SERVICE: "same column", LINT: "could not parse", ZIZMOR: "failed to load"},
    "key-misspelt": {SERVICE: "'step'", LINT: '"step"', ZIZMOR: "failed to load"},
    "key-twice": {SERVICE: "already defined", LINT: "duplicated", ZIZMOR: "failed to load", RUNNER: "duplicate key"},
    "needs-cycle": {SERVICE: "no dependencies", LINT: "cyclic", RUNNER: "need each other"},
    "no-timeout": {HOUSE: "nothing is left to a default"},
    "output-misspelt-in-a-step": {HOUSE: "every output is set"},
    "output-misspelt-in-brackets": {HOUSE: "every output is set"},
    "output-misspelt-in-the-job": {HOUSE: "every output is set"},
    "output-never-set": {HOUSE: "every output is set"},
    "output-of-a-call": {SERVICE: "number", HOUSE: "every output is set"},
    "output-of-a-workflow": {LINT: '"number" is not defined', HOUSE: "every output is set"},
    "output-of-no-command": {HOUSE: "every output is set"},
    "permission-unknown": {SERVICE: "content", LINT: "content", RUNNER: "unknown permission content"},
    "permissions-escalated": {RUNNER: "its caller has packages: none"},
    "pip-in-a-substitution-with-rights": {SHELL: "SC2312", HOUSE: "one command a step"},
    "script-syntax": {SHELL: "SC1046", HOUSE: "one command a step"},
    "script-variable-misspelt": {SHELL: "SC2154 NAEM"},
    "two-commands": {HOUSE: "one command a step"},
}
"""Defect -> checker -> text that the checker must report; it may report more."""

UNREADABLE = frozenset(name for name, texts in EXPECTED.items() if texts.get(ZIZMOR) == "failed to load")
"""Defects that keep zizmor from reading the whole tree, so each gets a tree of its own."""


def make_tree(folder: Path, defects: Collection[str]) -> Path:
    """Write a tree with the good files and the files of these defects."""
    (folder / FOLDER).mkdir(parents=True)
    (folder / ".github/actions/greet").mkdir(parents=True)
    for path in (CORPUS / "good").iterdir():
        shutil.copy(path, folder / (".github/actions/greet" if path.name == "action.yml" else FOLDER))
    for name in defects:
        shutil.copy(CORPUS / f"{name}.defect", folder / FOLDER / f"{name}.yml")
    shutil.copy(TREE / ".github/zizmor.yml", folder / ".github")
    return folder


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, list[Finding]]:
    """Checker -> its findings in a tree with all defects."""
    every = make_tree(tmp_path_factory.mktemp("every"), EXPECTED)
    readable = make_tree(tmp_path_factory.mktemp("readable"), EXPECTED.keys() - UNREADABLE)
    found = {name: checker(every) for name, checker in CHECKERS.items() if name in (SERVICE, LINT)}
    found |= {SHELL: CHECKERS[SHELL](readable), ZIZMOR: zizmor(readable), HOUSE: check_house(readable)}
    for name in sorted(UNREADABLE):
        alone = zizmor(make_tree(tmp_path_factory.mktemp(name), [name]))
        found[ZIZMOR] += [Finding(f"{FOLDER}/{name}.yml", 0, one.message) for one in alone]
    return found


def expected_of(checker: str) -> dict[str, str]:
    return {name: texts[checker] for name, texts in EXPECTED.items() if checker in texts}


@pytest.mark.slow
@pytest.mark.parametrize("checker", [*CHECKERS, HOUSE])
def test_a_checker_finds_its_defects_and_accepts_the_good_files(
    findings: Mapping[str, list[Finding]], checker: str
) -> None:
    messages: dict[str, str] = {}
    for one in findings[checker]:
        messages[one.file] = f"{messages.get(one.file, '')}{one.message}\n"
    expected = expected_of(checker)
    assert expected
    missed = {name for name, text in expected.items() if text not in messages.get(f"{FOLDER}/{name}.yml", "")}
    assert missed == set()
    good = {f"{FOLDER}/{path.name}" for path in (CORPUS / "good").iterdir()} | {".github/actions/greet/action.yml"}
    assert good & set(messages) == set()


def test_the_runner_finds_its_defects(tmp_path: Path, evaluator: Expressions) -> None:
    found = {}
    for name in expected_of(RUNNER):
        setup = RunnerSetup(make_tree(tmp_path / name / "tree", [name]), tmp_path / name / "runs", evaluator)
        try:
            run = run_workflow(setup, f"{name}.yml", push(), unexecuted=["one", "one/say"])
        except WorkflowError as error:
            found[name] = str(error)
        else:
            found[name] = run.output() if run.result == "failure" else ""
    assert {name: found[name] for name, text in expected_of(RUNNER).items() if text not in found[name]} == {}


def test_every_defect_is_expected_and_every_house_rule_has_a_defect() -> None:
    assert {path.stem for path in CORPUS.glob("*.defect")} == set(EXPECTED)
    assert all(EXPECTED.values())
    assert set(expected_of(HOUSE).values()) == set(RULES)


def test_a_finding_names_the_line_and_what_to_do_in_every_file_that_github_reads(tmp_path: Path) -> None:
    tree = make_tree(tmp_path, ["failure-hidden-by-true", "output-misspelt-in-the-job"])
    remedies = [RULES[name].remedy for name in ("one command a step", "every output is set")]
    lines = [(one.file, one.line, *one.message.split("; ", 1)) for one in check_house(tree)]
    assert [line[3] for line in lines] == remedies
    assert [line[:3] for line in lines] == [
        (f"{FOLDER}/failure-hidden-by-true.yml", 14, "one command a step: one: ./factory verify dist/*.whl || true"),
        (f"{FOLDER}/output-misspelt-in-the-job.yml", 13, "every output is set: the file: steps.plan.outputs.nmuber"),
    ]
    for name in ("workflows/one.yaml", "actions/deep/below/action.yaml"):
        tree = make_tree(tmp_path / name, [])
        (tree / ".github" / name).parent.mkdir(parents=True, exist_ok=True)
        step = "run: echo one && echo two\n"
        (tree / ".github" / name).write_text(f"name: one\nruns:\n  steps:\n    - name: Say\n      {step}")
        assert [one.file for one in check_house(tree)] == [f".github/{name}"]


def test_every_repository_variable_and_secret_is_documented() -> None:
    """GitHub takes a misspelt name for an empty value."""
    used = set(re.findall(r"\b(?:vars|secrets)\.(\w+)", (TREE / WORKFLOWS).read_text()))
    variables, secrets = (TREE / "docs/how-to" / name for name in ("publish-on-github.md", "refresh.md"))
    documented = re.findall(r"^- `(WHEELFACTORY_\w+)`", variables.read_text(), re.MULTILINE)
    assert used == {*documented, *re.findall(r"secret `(WHEELFACTORY_\w+)`", secrets.read_text())}


def test_the_page_on_runners_names_jobs_and_artifacts_that_exist() -> None:
    page = (TREE / "docs/how-to/self-hosted-runners.md").read_text()
    workflows = "".join((TREE / name).read_text() for name in workflow_files(TREE))
    sealed = re.findall(r"uses: ./.github/actions/seal\n +with:\n +name: (.+)", workflows)
    artifacts = [re.sub(r"\$\{\{.*?\}\}", "*", name) for name in sealed]
    (downloaded,) = re.findall(r"gh run download .*--pattern '([^']+)'", page)
    assert any(fnmatchcase(downloaded, name) for name in artifacts if name != "*"), downloaded
    jobs = re.findall(r"^    name: ([\w -]+)$", workflows, re.MULTILINE)
    assert {"Build", "Verify"} <= {*re.findall(r"(?<!\*)\*([A-Z]\w+)\*(?!\*)", page)} <= {*jobs}


def test_the_listed_outputs_are_those_of_the_commands() -> None:
    commands = {what.split()[2]: names.split() for what, names in OUTPUTS.items() if "factory ci" in what}
    assert commands.keys() == {"batch", "collect", "digest", "jobs"}
    for command, names in commands.items():
        module = MODULES.get(command, f"ci.{command}").replace(".", "/")
        source = (TREE / f"src/wheelfactory/commands/{module}.py").read_text()
        assert [name for name in names if f'"{name}"' not in source] == []


def test_a_checker_without_files_fails(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir(parents=True)
    for checker in (*CHECKERS.values(), check_house):
        with pytest.raises(NothingCheckedError):
            checker(tmp_path)


@pytest.mark.parametrize(
    "checker", [pytest.param(name, marks=pytest.mark.slow if name == SERVICE else ()) for name in (*CHECKERS, HOUSE)]
)
def test_our_workflows_and_actions_have_no_defect(checker: str) -> None:
    assert (check_house if checker == HOUSE else CHECKERS[checker])(TREE) == []
