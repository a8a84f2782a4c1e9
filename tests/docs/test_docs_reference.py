"""Reference pages say all there is: every command, every environment variable."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.pages import Page, repository_files
from wheelfactory.build.environments import clean_environ
from wheelfactory.core.files import ROOT
from wheelfactory.kernels.compiler.hipcc import COMPILER_ENVIRONMENT
from wheelfactory.wheel.corrections import read_options

ENVIRONMENT = Page("docs/reference/environment.md")

VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+|PYTHON[A-Z]+|PATH|HOME|CPATH|TMPDIR|BROWSER")
OTHER_CONSTANTS = {"HIPIFY_V2", "HIP_ENABLE_WARP_SYNC_BUILTINS", "RESERVED_KWS", "SYS_PTRACE", "FLASH_ATTN"}
"""Constants in capitals that are no environment variable: macros and names of HIP, Triton, sysconf, Linux and ours."""


def variables_of_python(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        name = node.value if isinstance(node, ast.Constant) else node.arg if isinstance(node, ast.keyword) else None
        if isinstance(name, str) and VARIABLE.fullmatch(name) and name not in OTHER_CONSTANTS:
            yield name


def variables_of_shell(text: str) -> Iterator[str]:
    """What a script reads and has not assigned, and what it sets for a command."""
    own = re.findall(r"^\s*(?:local |export )?([A-Z][A-Z0-9_]+)=", text, re.MULTILINE)
    read = re.findall(r"\$\{?([A-Z][A-Z0-9_]+)", text)
    for_a_command = re.findall(r"\b([A-Z][A-Z0-9_]+)=\S+ ", text)
    yield from ({*read, *for_a_command} - {name for name in own if name not in for_a_command}) - OF_BASH


OF_BASH = {"BASH_SOURCE", "BASH_COMMAND", "LINENO"}


def variables_of_workflow(text: str) -> Iterator[str]:
    """Variables of the repository, and what scripts read that no ``env:`` of the workflow gives."""
    yield from re.findall(r"\bvars\.(\w+)", text)
    given = set(re.findall(r"^ +([A-Z][A-Z0-9_]+): ", text, re.MULTILINE))
    yield from set(re.findall(r"\$\{?([A-Z][A-Z0-9_]+)", text)) - given
    yield from given & {"GITHUB_TOKEN", "GH_TOKEN", "GH_REPO"}


def found_variables() -> dict[str, str]:
    """Every variable that the project reads or sets, and a file that does."""
    found: dict[str, str] = {}
    for name in sorted(repository_files()):
        path = ROOT / name
        if name.endswith(".py") and name.startswith(("src/", "scripts/", "docs/")):
            found.update(dict.fromkeys(variables_of_python(path), name))
        elif name in ("factory", "build_rocm.sh", ".ci/run") or name.startswith("docker/Dockerfile"):
            found.update(dict.fromkeys(variables_of_shell(path.read_text()), name))
        elif name.startswith(".github/") and name.endswith(".yml"):
            found.update(dict.fromkeys(variables_of_workflow(path.read_text()), name))
    return found


SET = {
    *("AITER_USE_SYSTEM_TRITON", "BUILD_PYTHON", "BUILD_TARGET", "DEBIAN_FRONTEND", "GH_PROMPT_DISABLED"),
    *("GRPC_VERBOSITY", "KERNEL_ARCH", "KERNEL_ARGUMENTS", "OMP_NUM_THREADS", "RAW_DIR", "SOURCE_DATE_EPOCH"),
    *("SOURCE_DIR", "WORK_DIR", "TRITON_CACHE_DIR", "TRITON_DISABLE_LINE_INFO", "TRITON_HIP_LLD_PATH"),
    *("FLASH_ATTENTION_FORCE_BUILD", "FLASH_ATTENTION_SKIP_CUDA_BUILD"),
    *("WHEELFACTORY_COMMAND", "WHEELFACTORY_COMPILE_REQUEST"),
}
"""What the factory sets for its own parts and for other programs, whatever a user gives."""


def is_no_concern_of_users(name: str) -> bool:
    """Whether a source lists it that the page links, or the factory sets it."""
    ours = name.startswith(("WHEELFACTORY_", "FLASH_ATTENTION_"))
    listed = name in COMPILER_ENVIRONMENT or not (ours or clean_environ({name: ""}))
    return listed or name in SET or name.startswith(("PIP_", "UV_", "GIT_"))


def test_every_variable_that_is_read_or_set_is_described() -> None:
    described = set(ENVIRONMENT.spans)
    missing = {name: path for name, path in found_variables().items() if name not in described}
    assert {name: path for name, path in missing.items() if not is_no_concern_of_users(name)} == {}


def variables_of_tests() -> Iterator[str]:
    """What tests read; that they set others for what they test makes those no variable of the project."""
    for name in repository_files():
        if name.startswith("tests/") and name.endswith(".py"):
            yield from re.findall(r"\bos\.environ(?:\.get\(|\[)\"(\w+)\"", (ROOT / name).read_text())


def test_every_variable_that_is_described_is_read_or_set() -> None:
    described = {span for span in ENVIRONMENT.spans if VARIABLE.fullmatch(span)}
    assert described - {*found_variables(), *variables_of_tests()} == set()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("vars.ONE || '*'", {"ONE"}),
        ("  env:\n    SITE: x\n    run: ./factory $SITE >> $GITHUB_OUTPUT", {"GITHUB_OUTPUT"}),
    ],
)
def test_a_workflows_own_variables_are_not_the_projects(text: str, found: set[str]) -> None:
    assert set(variables_of_workflow(text)) == found


def test_the_options_of_each_wheel_are_those_that_tests_measure() -> None:
    options = read_options()
    rows = [["", *options.wheels], ["---"] * (len(options.wheels) + 1)]
    same: dict[int, list[str]] = {0: [], len(options.wheels): []}
    for option, refused in options.refused.items():
        if len(refused) in same:
            same[len(refused)].append(f"`{option}`")
        else:
            rows.append([f"`{option}`", *("error" if kind in refused else "yes" for kind in options.wheels)])
    table = "".join(f"| {' | '.join(row)} |\n" for row in rows).replace("|  |", "| |").replace(" --- ", "---")
    page = Page("docs/explanation/backends.md").text
    assert table in page
    everywhere, nowhere = map(", ".join, same.values())
    assert f"Every wheel computes {everywhere}; none computes {nowhere}." in " ".join(page.split())
