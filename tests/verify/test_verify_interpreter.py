"""Gate interpreter: upstream's kernels compute attention; a kernel that is a little wrong is found out."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from wheel_factory import TRITON, build_record, finished_wheel, small_machine
from wheelfactory.verify import interpreter as module
from wheelfactory.verify.gate import Subject
from wheelfactory.verify.interpreter import check_in_interpreter
from wheelfactory.verify.limits import KnownLimit
from wheelfactory.verify.result import GateResult, Status
from wheelfactory.wheel.read import Wheel

pytestmark = pytest.mark.slow

KERNELS = "flash_attn/flash_attn_triton_amd"
REFUSED = (
    "raises an error for window_size; window_size, gradients; softcap; block_table; block_table, new keys; "
    "block_table, packed sequences; cache_leftpad; more than 2**31 elements"
)


def result_of(folder: Path, cache: Path, members: Mapping[str, bytes], environ: Mapping[str, str]) -> GateResult:
    path = finished_wheel(folder, TRITON, members=members)
    return check_in_interpreter(
        Subject(Wheel.open(path), build_record(TRITON), TRITON, context=small_machine(cache, environ))
    )


def test_upstreams_kernels_are_right(tmp_path: Path, bare_cache: Path, upstream: Mapping[str, bytes]) -> None:
    # what upstream and Triton would read: a reference in place of the kernels, and dumps
    harmful = {"FLASH_ATTENTION_TRITON_AMD_REF": "1", "TRITON_INTERPRET": "0", "TRITON_KERNEL_DUMP": "1"}

    result = result_of(tmp_path, bare_cache, upstream, {**os.environ, **harmful})

    assert (result.gate, result.status, result.findings) == ("interpreter", Status.PASSED, ())
    assert result.detail == f"Triton 3.7.1, against float64; {REFUSED}"
    assert (result.versions["torch"], result.versions["triton"]) == ("2.13.0+cpu", "3.7.1")
    assert len(result.figures) == 2 * 30  # not the eight cases that are refused, and the append after the end
    assert 0 < result.figures["causal float16 error"] <= result.figures["causal float16 bound"] < 0.01

    (proof,) = (bare_cache / "proofs").iterdir()
    again = result_of(tmp_path / "again", bare_cache, upstream, {"PATH": "without any program"})
    assert (again, list((bare_cache / "proofs").iterdir())) == (result, [proof])


def test_a_known_limit_is_skipped_and_reported(
    tmp_path: Path, bare_cache: Path, upstream: Mapping[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    grouped = KnownLimit("grouped*", flash_attn=">=2", reason="backward with grouped heads")
    packed = KnownLimit("packed*", flash_attn=">=2", reason="packed sequences", skip_forward=True)
    monkeypatch.setattr(module, "find_cell_limits", lambda subject: (grouped, packed))

    result = result_of(tmp_path, bare_cache, upstream, os.environ)

    assert (result.status, result.findings) == (Status.PASSED, ())
    assert result.detail == (
        f"Triton 3.7.1, against float64; skipped: backward with grouped heads; skipped: packed sequences; {REFUSED}"
    )
    (proof,) = (bare_cache / "proofs").iterdir()
    cases = json.loads(proof.read_bytes())["report"]["cases"]
    assert [case["name"] for case in cases if case["name"].startswith("packed")] == []
    (grouped_case,) = (case for case in cases if case["name"].startswith("grouped"))
    assert set(grouped_case["errors"]) == {"output"}


SCALE_OFF = ("fwd_prefill.py", "qk_scaled =  qk * SM_SCALE", "qk_scaled =  qk * SM_SCALE * 1.005")
WRONG_GROUP = ("fwd_prefill.py", "off_h_k = off_h_q // GROUP_SIZE", "off_h_k = off_h_q % HK")
GRADIENT_OFF = ("bwd_prefill_split.py", "    dk *= sm_scale", "    dk *= sm_scale * 1.01")
APPEND_ANYWHERE = ("fwd_decode.py", " & (offs_n[:, None] + i + start_idx < N_CTX_K)", "")
ONE_KEY_TOO_FEW = ("fwd_decode.py", "< hi - start_n", "< hi - 1 - start_n")


@pytest.mark.parametrize(
    ("changes", "wrong", "right"),
    [
        pytest.param(
            (SCALE_OFF, APPEND_ANYWHERE),
            {
                "append after the end causal float16 to run in Triton's interpreter",
                "output of full float16",
                "output of packed causal float16",
                "dq of wide float16",
            },
            set[str](),
            id="scale of the scores off by 0.5 %, values appended after the end of a cache",
        ),
        pytest.param(
            (WRONG_GROUP, GRADIENT_OFF, ONE_KEY_TOO_FEW),
            {
                *(f"{result} of grouped causal float16" for result in ("output", "dq", "dk", "dv")),
                *("dk of full float16", "dk of causal float16", "dk of packed causal float16"),
                "output of cached float16",
            },
            {"output of full float16", "dq of full float16", "dv of causal float16", "output of packed causal float16"},
            id="heads in the wrong group, a gradient off by 1 %, one key too few",
        ),
    ],
)
def test_wrong_kernels_are_found_out(
    tmp_path: Path,
    bare_cache: Path,
    upstream: Mapping[str, bytes],
    changes: Sequence[tuple[str, str, str]],
    wrong: set[str],
    right: set[str],
) -> None:
    changed = dict(upstream)
    for file, good, bad in changes:
        name = f"{KERNELS}/{file}"
        assert good.encode() in changed[name]
        changed[name] = changed[name].replace(good.encode(), bad.encode())

    result = result_of(tmp_path, bare_cache, changed, os.environ)

    assert result.status is Status.FAILED
    found = {finding.expected.partition(" with an error of ")[0] for finding in result.findings}
    assert wrong <= found
    assert not right & found
    first = result.findings[0]
    assert first.file == "flash_attn-2.8.3+rocm72torch2.13triton-py3-none-any.whl"
    assert " with an error of at most 0.00" in first.expected
    assert first.expected.endswith(" in Triton's interpreter")
    assert float(first.found) > 0.003
    assert "do not work with this Triton" in first.remedy
    assert not (bare_cache / "proofs").exists()


@pytest.mark.parametrize(
    ("bad", "found"),
    [
        pytest.param("import os; os._exit(7)", "exit status 7", id="ends the program"),
        pytest.param("import os; os.abort()", "killed by SIGABRT", id="crashes it"),
        pytest.param("raise RuntimeError('no')", "RuntimeError: no", id="does not import"),
    ],
)
def test_a_wheel_that_ends_the_program_is_a_finding(
    tmp_path: Path, bare_cache: Path, upstream: Mapping[str, bytes], bad: str, found: str
) -> None:
    changed = {**upstream, f"{KERNELS}/interface_fa.py": bad.encode()}

    (finding,) = result_of(tmp_path, bare_cache, changed, os.environ).findings

    assert (finding.expected, finding.found) == ("attention to run in Triton's interpreter", found)
