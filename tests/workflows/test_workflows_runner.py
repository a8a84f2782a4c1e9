"""Jobs and steps: conditions, contexts, environments and outputs."""

from __future__ import annotations

import pytest

from workflows.conftest import RunText
from workflows.document import WorkflowError
from workflows.events import dispatch
from workflows.jobs import LIMIT, MatrixError, expand_matrix

JOB = "runs-on: ubuntu-24.04"


def job(name: str, script: str, *lines: str) -> str:
    """Write a job with one step."""
    return "\n".join(
        [f"  {name}:", f"    {JOB}", *(f"    {line}" for line in lines), f"    steps: [{{run: {script!r}}}]\n"]
    )


def test_a_failure_skips_direct_and_indirect_dependents_unless_they_ask_for_it(run_text: RunText) -> None:
    text = job("first", "false") + job("middle", "true", "needs: first")
    conditions = {
        "plain": ("", "skipped"),
        "always": ("if: always()", "success"),
        "failed": ("if: failure()", "success"),
        "asked": ("if: needs.middle.result == 'skipped'", "skipped"),
        "not-cancelled": ("if: '!cancelled()'", "success"),
    }
    run = run_text(text + "".join(job(name, "true", "needs: middle", one) for name, (one, _) in conditions.items()))
    expected = {name: [result] for name, (_, result) in conditions.items()}
    assert run.results() == {"first": ["failure"], "middle": ["skipped"], **expected}
    assert run.result == "failure"


def test_only_an_explicit_bash_has_pipefail_and_an_invalid_or_unsupported_file_fails_a_step(run_text: RunText) -> None:
    plain = job("plain", "false | true")
    text = plain + plain.replace("plain", "named").replace("[{", "[{shell: bash, ")
    text += job("line", 'printf "a line" >> "$GITHUB_OUTPUT"') + job("env", 'printf "a=1" >> "$GITHUB_ENV"')
    run = run_text(text)
    assert run.results() == {"plain": ["success"], "named": ["failure"], "line": ["failure"], "env": ["failure"]}
    assert "Invalid format" in run.job("line").output
    assert "GITHUB_ENV is not supported" in run.job("env").output


def test_outputs_above_the_limit_fail_the_job(run_text: RunText) -> None:
    text = f"""
  one:
    {JOB}
    outputs: {{a: '${{{{ steps.a.outputs.a }}}}'}}
    steps: [{{id: a, run: "printf 'a=%0*d' SIZE 0 >> $GITHUB_OUTPUT"}}]
"""
    assert run_text(text.replace("SIZE", "500000")).result == "success"
    refused = run_text(text.replace("SIZE", "530000"))
    assert refused.result == "failure"
    assert "the limit is 1048576" in refused.job("one").error


def test_the_last_combination_that_sets_an_output_wins(run_text: RunText) -> None:
    run = run_text(f"""
  all:
    name: Cell ${{{{ matrix.id }}}}
    strategy: {{matrix: {{include: [{{id: a}}, {{id: b}}, {{id: c}}]}}}}
    {JOB}
    outputs: {{got: '${{{{ steps.s.outputs.got }}}}'}}
    env: {{ID: '${{{{ matrix.id }}}}'}}
    steps: [{{id: s, if: "matrix.id != 'c'", run: 'echo "got=$ID" >> "$GITHUB_OUTPUT"'}}]
  after:
    needs: all
    {JOB}
    steps: [{{run: 'echo "$GOT"', env: {{GOT: '${{{{ needs.all.outputs.got }}}}'}}}}]
""")
    assert [one.name for one in run.jobs_at("all")] == ["Cell a", "Cell b", "Cell c"]
    assert run.job("after").output == "b\n"


def test_an_oversized_or_empty_matrix_is_refused() -> None:
    assert len(expand_matrix({"include": [{}] * LIMIT})) == LIMIT
    for count in (0, LIMIT + 1):
        with pytest.raises(MatrixError):
            expand_matrix({"include": [{}] * count})


def test_inputs_of_a_manual_run_have_types_and_defaults(run_text: RunText) -> None:
    text = """on:
  workflow_dispatch:
    inputs:
      round: {type: number, default: 1}
      upload: {type: boolean, default: true}
      only: {type: string, default: ''}
jobs:
  one:
    if: ${{ inputs.upload }}
    runs-on: ubuntu-24.04
    steps:
      - run: echo "$A"
        env:
          A: ${{ inputs.round > 1 }} ${{ inputs.round }} ${{ inputs.only }}
"""
    assert run_text(text, event=dispatch()).job("one").output == "false 1 \n"
    assert run_text(text, event=dispatch(), inputs={"round": "2", "only": "x"}).job("one").output == "true 2 x\n"
    assert run_text(text, event=dispatch(), inputs={"upload": "false"}).job("one").result == "skipped"
    for wrong in ({"other": "1"}, {"round": "two"}, {"upload": "perhaps"}):
        with pytest.raises(WorkflowError):
            run_text(text, event=dispatch(), inputs=wrong)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (job("one", "true", "needs: other"), "need each other or a missing job"),
        (job("one", "true", "container: debian"), "container is not supported"),
        (job("one", "true", "defaults: {}"), "defaults is not supported"),
        (job("one", "true", "secrets: {A: b}"), "secrets is not supported"),
        (job("one", "true").replace("[{", "[{working-directory: a, "), "working-directory is not supported"),
        (job("one", "true").replace("[{", "[{shell: pwsh, "), "pwsh"),
        ("  one: [", "main.yml"),
    ],
)
def test_invalid_workflows_do_not_start(run_text: RunText, text: str, complaint: str) -> None:
    with pytest.raises(WorkflowError, match=complaint):
        run_text(text)


def test_a_job_without_permissions_has_no_token_and_steps_that_see_one_are_recorded(run_text: RunText) -> None:
    steps = """
    runs-on: ubuntu-24.04
    steps:
      - {run: 'echo "[$TOKEN]"', env: {TOKEN: '${{ github.token }}'}}
      - {run: 'echo "[$OTHER]"', env: {OTHER: '${{ secrets.OTHER }}'}}
"""
    run = run_text(
        f"  none:{steps}  some:\n    permissions: {{contents: read}}{steps}", settings={"secrets": {"OTHER": "key"}}
    )
    assert run.job("none").output == "[]\n[key]\n"
    assert [step.saw_token for step in run.job("none").steps] == [False, False]
    assert [step.saw_token for step in run.job("some").steps] == [True, False]


def test_unexecuted_jobs_evaluate_expressions_and_run_nothing(run_text: RunText) -> None:
    text = f"""
  all:
    strategy: {{matrix: {{include: [{{id: a}}, {{id: b}}]}}}}
    {JOB}
    steps: [{{run: exit 1, env: {{ID: '${{{{ VALUE }}}}'}}}}]
"""
    assert run_text(text.replace("VALUE", "matrix.id"), unexecuted=["all"]).results() == {"all": ["success", "success"]}
    assert run_text(text.replace("VALUE", "matrixx.id"), unexecuted=["all"]).result == "failure"
