"""Called workflows and composite actions."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from workflows.conftest import RunText
from workflows.document import WorkflowError

CALLED = ".github/workflows/called.yml"

SAYS = """on:
  workflow_call:
    inputs:
      text: {type: string, required: true}
      number: {type: number, default: 4}
      flag: {type: boolean, default: false}
    outputs:
      text: {value: '${{ jobs.say.outputs.text }}'}
env: {OWN: 'from ${{ inputs.text }}'}
jobs:
  say:
    runs-on: ubuntu-24.04
    outputs: {text: '${{ steps.say.outputs.text }}'}
    steps:
      - id: say
        run: |
          echo "text=$TEXT $NUMBER $FLAG" >> "$GITHUB_OUTPUT"
          echo "[$CALLERS] $OWN"
        env:
          TEXT: ${{ inputs.text }}
          NUMBER: ${{ inputs.number }}
          FLAG: ${{ inputs.flag }}
"""


def call(*lines: str) -> str:
    """Write a job that calls SAYS."""
    return "\n".join(["  call:", f"    uses: ./{CALLED}", *(f"    {line}" for line in lines), ""])


def test_a_call_passes_inputs_and_outputs_but_no_environment(run_text: RunText) -> None:
    run = run_text(
        "on: push\nenv: {CALLERS: environment}\njobs:\n"
        + call("with: {text: hello, flag: true}")
        + "  after: {needs: call, runs-on: u, env: {A: '${{ needs.call.outputs.text }}'}, steps: [{run: 'echo $A'}]}\n",
        {CALLED: SAYS},
    )
    assert run.job("call/say").output == "[] from hello\n"
    assert run.job("after").output == "hello 4 true\n"


def test_a_value_of_the_wrong_type_fails_the_call(run_text: RunText) -> None:
    for given in ("{text: 2.10}", "{text: a, number: '${{ vars.none }}'}", "{text: a, flag: 'true'}"):
        run = run_text(call(f"with: {given}"), {CALLED: SAYS})
        assert run.result == "failure"
        assert "the input" in run.job("call").error


def test_a_called_workflow_cannot_raise_permissions(run_text: RunText) -> None:
    def start(wanted: str) -> Mapping[str, str]:
        files = {CALLED: SAYS.replace("  say:\n", f"  say:\n    {wanted}\n")}
        return run_text(call("with: {text: a}", "permissions: {contents: write}"), files).job("call/say").permissions

    assert start("permissions: {contents: read}") == {"contents": "read"}
    assert start("") == {"contents": "write"}
    with pytest.raises(WorkflowError, match=r"requests .*, its caller has"):
        start("permissions: {id-token: write}")


ACTION = """name: greet
description: greets
inputs:
  who: {description: whom, required: true}
  how: {description: how, default: hello}
outputs:
  text: {description: it, value: '${{ steps.say.outputs.text }}'}
runs:
  using: composite
  steps:
    - id: say
      shell: bash
      run: |
        echo "text=$HOW $WHO $SEEN" >> "$GITHUB_OUTPUT"
        test -f "$GITHUB_ACTION_PATH/action.yml"
      env: {HOW: '${{ inputs.how }}', WHO: '${{ inputs.who }}'}
    - uses: ./.github/actions/inner
"""
INNER = "name: i\ndescription: i\nruns: {using: composite, steps: [{shell: bash, run: 'echo inner'}]}\n"

USES = """
  one:
    runs-on: ubuntu-24.04
    steps:
      - uses: actions/checkout@0000000000000000000000000000000000000000
      - id: greet
        uses: ./.github/actions/greet
        env: {SEEN: seen}
        with: WITH
      - {run: 'echo "$A"', env: {A: '${{ steps.greet.outputs.text }}'}}
"""

ACTIONS = {".github/actions/greet/action.yml": ACTION, ".github/actions/inner/action.yml": INNER}


def test_a_composite_action_can_use_another(run_text: RunText) -> None:
    run = run_text(USES.replace("WITH", "{who: you}"), ACTIONS)
    assert run.result == "success", run.output()
    assert run.job("one").steps[-1].output == "hello you seen\n"
    assert "inner" in run.job("one").output


def test_a_composite_action_has_only_its_inputs_no_secrets_and_needs_a_shell(run_text: RunText) -> None:
    for given, inner, complaint in (
        ("{}", INNER, "requires who"),
        ("{who: a, when: b}", INNER, "no input when"),
        ("{who: you}", INNER.replace("shell: bash, ", ""), "the shell None"),
    ):
        with pytest.raises(WorkflowError, match=complaint):
            run_text(USES.replace("WITH", given), {**ACTIONS, ".github/actions/inner/action.yml": inner})
    files = {**ACTIONS, ".github/actions/inner/action.yml": INNER.replace("echo inner", "echo ${{ secrets.A }}")}
    run = run_text(USES.replace("WITH", "{who: you}"), files)
    assert "Unrecognized named-value: 'secrets'" in run.job("one").output
