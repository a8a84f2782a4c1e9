"""The presets of `wheelfactory bench attention` on the CPU with a real torch: each implementation agrees with float64.

One process imports the programs for all tests, because importing torch takes seconds.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import pytest

from warm_python import WarmPython, start_warm_python
from wheelfactory.build.environments import make_build_environment
from wheelfactory.core.files import FALLBACK_SOURCES
from wheelfactory.gpu.bench.measure import PROGRAMS
from wheelfactory.gpu.bench.reports import AttentionPreset

pytestmark = pytest.mark.slow

PRESETS = get_args(AttentionPreset)
LENGTH = 300
"""Tokens; more than the preset's window."""

SIZES = {"batch": 3, "heads": 4, "kv_heads": 2, "head_dim": 16, "dtype": "float32", "foreign_gpu": False}

needs_compiler = pytest.mark.skipif(not shutil.which("g++"), reason="torch compiles FlexAttention with g++ on a CPU")


@dataclass(frozen=True)
class Programs:
    """A Python with a CPU build of torch, which has imported the programs."""

    python: WarmPython

    def run(self, *lines: str, **variables: str) -> list[Any]:
        """Run these lines after the imports, in a process of their own; return the JSON lines that they print."""
        return [json.loads(line) for line in self.python.run(*lines, **variables)]

    def measure(self, *cases: tuple[str, Mapping[str, Any]], **variables: str) -> list[dict[str, Any]]:
        """The row of each length of each case: an implementation and its config, beside `SIZES`."""
        configs = [(name, {"causal": True, "backward": False, **SIZES, **config}) for name, config in cases]
        return self.run(
            f"for name, config in json.loads({json.dumps(configs)!r}):",
            f"    loaded = load_implementation(name, 'cpu', {str(FALLBACK_SOURCES / 'src')!r})",
            "    for row in attention.measure_all(loaded, config, 'cpu'):",
            "        print(json.dumps(row))",
            **variables,
        )


@pytest.fixture(scope="module")
def programs(cache: Path) -> Iterator[Programs]:
    imports = (
        f"sys.path.append({str(PROGRAMS)!r})",
        "import attention, torch, torch_attention",
        "from call_options import CallOptions",
        "from implementations import LoadedImplementation, load_implementation",
        "attention.BATCHES = attention.FEWEST_BATCHES = 1",
    )
    with start_warm_python(make_build_environment(cache).python, *imports, environ=os.environ) as python:
        yield Programs(python)


Rows = Mapping[tuple[str, str, bool], dict[str, Any]]


@pytest.fixture(scope="module")
def rows(programs: Programs) -> Rows:
    """By implementation, preset and whether it is causal: forward and backward of all but FlexAttention."""
    keys = [
        (name, preset, causal)
        for name in ("fallback", "sdpa", "plain")
        for preset in PRESETS
        for causal in (True, False)
    ]
    cases = [
        (name, {"preset": preset, "causal": causal, "backward": True, "seqlens": [LENGTH]})
        for name, preset, causal in keys
    ]
    return dict(zip(keys, programs.measure(*cases), strict=True))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("preset", PRESETS)
def test_output_and_gradients_of_each_preset_agree_with_float64(rows: Rows, preset: str, causal: bool) -> None:
    names = ("fallback", "sdpa", "plain") if preset == "deterministic" else ("fallback", "plain")
    for name in names:
        row = rows[name, preset, causal]
        assert row["status"] == "measured", row
        assert 0 < row["difference"] < 1e-5  # float32 has 24 bits
        assert row["times_ms"]


def test_each_preset_changes_what_is_computed(programs: Programs) -> None:
    """Without the option, the results would differ from those of the preset by more than rounding."""
    lines = (
        "plain = LoadedImplementation(torch_attention.plain, None, 'torch')",
        "for preset in ('window', 'softcap', 'alibi', 'varlen'):",
        f"    config = {{**{SIZES!r}, 'causal': True, 'preset': preset}}",
        f"    options = attention.make_options(config, {LENGTH}, 'cpu')",
        f"    tensors = attention.inputs(config, options, {LENGTH}, 'cpu')",
        "    without = CallOptions(True)",
        "    results = [torch_attention.plain(*(tensor[None] for tensor in tensors[:3]), without)[0]]",
        "    if preset != 'varlen':",
        "        results = [torch_attention.plain(*tensors[:3], without)]",
        "    print(json.dumps(attention.greatest_difference(results, tensors, options)))",
    )
    assert all(difference > 1e-3 for difference in programs.run(*lines))


def test_the_pairs_of_each_preset_are_counted(rows: Rows) -> None:
    dense = 3 * LENGTH**2
    assert {rows["plain", preset, False]["pairs"] for preset in ("softcap", "alibi", "deterministic")} == {dense}
    assert {rows["plain", preset, True]["pairs"] for preset in ("softcap", "alibi", "deterministic")} == {dense / 2}
    hidden = LENGTH - 257  # keys that the last query does not see
    assert rows["plain", "window", True]["pairs"] == 3 * (LENGTH * (LENGTH + 1) - hidden * (hidden + 1)) / 2
    packed = rows["plain", "varlen", False]["pairs"]
    assert LENGTH**2 < packed < dense
    assert rows["plain", "varlen", True]["pairs"] == packed / 2


@pytest.mark.parametrize(
    ("preset", "why"),
    [
        ("window", "SDPA has no option for a window"),
        ("softcap", "SDPA has no option for softcap"),
        ("alibi", "SDPA has no option for ALiBi slopes"),
        ("varlen", "SDPA has no option for packed sequences"),
    ],
)
def test_sdpa_is_not_run_with_options_that_it_does_not_have(rows: Rows, preset: str, why: str) -> None:
    assert rows["sdpa", preset, True] == {"seqlen": LENGTH, "status": "not run", "reason": why}


def test_sdpas_whole_call_is_deterministic_and_torchs_mode_is_restored(programs: Programs) -> None:
    lines = (
        "modes = set()",
        "class Recorded(torch.autograd.Function):",
        "    @staticmethod",
        "    def forward(ctx, x):",
        "        modes.add(('forward', torch.are_deterministic_algorithms_enabled()))",
        "        return x.clone()",
        "    @staticmethod",
        "    def backward(ctx, gradient):",
        "        modes.add(('backward', torch.are_deterministic_algorithms_enabled()))",
        "        return gradient",
        "def recorded(q, k, v, options):",
        "    return torch_attention.sdpa(Recorded.apply(q), k, v, options)",
        "made = LoadedImplementation(recorded, None, 'torch', context=torch_attention.sdpa_context)",
        f"config = {{**{SIZES!r}, 'causal': True, 'backward': True, 'preset': 'deterministic'}}",
        "row = attention.measure(made, config, 40, 'cpu')",
        "print(json.dumps([row['status'], sorted(modes), torch.are_deterministic_algorithms_enabled()]))",
    )
    assert programs.run(*lines) == [["measured", [["backward", True], ["forward", True]], False]]


def test_gradients_that_differ_from_call_to_call_fail_the_deterministic_preset(programs: Programs) -> None:
    lines = (
        "calls = []",
        "def changing(q, k, v, options):",
        "    calls.append(1)",
        "    return torch_attention.plain(q * (1 + 1e-6 * (len(calls) == 4)), k, v, options)",
        "made = LoadedImplementation(changing, None, 'torch')",
        f"config = {{**{SIZES!r}, 'causal': True, 'backward': True, 'preset': 'deterministic', 'seqlens': [40, 41]}}",
        "for row in attention.measure_all(made, config, 'cpu'):",
        "    print(json.dumps([row['status'], row.get('reason')]))",
    )
    differs, same = programs.run(*lines)
    assert differs == ["failed", "the gradients of two calls differ"]
    assert same == ["measured", None]


FLEX_PRESETS = ("window", "softcap", "alibi", "varlen")
MANY = 20_000
"""Tokens of the block mask."""


@pytest.fixture(scope="module")
def flex(programs: Programs) -> Mapping[str, Any]:
    """FlexAttention's forward pass with each preset that it has, where torch compiles a function once, and no more.

    Then the shape of a block mask, and by how many MiB memory grew while it was made.
    """
    config = {"causal": True, "backward": False, **SIZES, "seqlens": [LENGTH]}
    measured = programs.run(
        "torch._dynamo.config.recompile_limit = 1",
        "loaded = load_implementation('flex', 'cpu', '')",
        f"for preset in {FLEX_PRESETS!r}:",
        f"    for row in attention.measure_all(loaded, {{**{config!r}, 'preset': preset}}, 'cpu'):",
        "        print(json.dumps(row))",
        "import resource",
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10",
        "torch._dynamo.reset()",
        f"before, tokens = peak(), {MANY}",
        "options = CallOptions(True, lengths=(tokens - 500, 500))",
        "mask = torch_attention._block_mask(options, tokens, torch.device('cpu'))",
        "print(json.dumps([list(mask.shape[-2:]), peak() - before]))",
    )
    return dict(zip((*FLEX_PRESETS, "block mask"), measured, strict=True))


@needs_compiler
@pytest.mark.parametrize("preset", FLEX_PRESETS)
def test_flex_attention_is_compiled_anew_for_each_length_and_agrees_with_float64(
    flex: Mapping[str, Any], preset: str
) -> None:
    assert flex[preset]["status"] == "measured", flex[preset]
    assert 0 < flex[preset]["difference"] < 1e-5


@needs_compiler
def test_the_block_mask_is_made_without_the_full_matrix(flex: Mapping[str, Any]) -> None:
    shape, grown_mib = flex["block mask"]
    assert shape == [MANY, MANY]
    assert grown_mib < MANY**2 / 2**20 / 2  # a bool each would be 381 MiB


def test_flex_attention_is_not_run_where_torch_cannot_compile_it_or_has_no_such_option(programs: Programs) -> None:
    seqlens = {"seqlens": [40]}
    backward, deterministic = programs.measure(
        ("flex", {"preset": None, "backward": True, **seqlens}),
        ("flex", {"preset": "deterministic", "backward": True, **seqlens}),
        CXX="true",
    )
    assert backward["reason"] == "FlexAttention has no backward pass on a CPU"
    assert deterministic["reason"] == (
        "torch does not document that FlexAttention's gradients have the same bits each time"
    )
    (switched_off,) = programs.measure(("flex", {"preset": None, **seqlens}), TORCH_COMPILE_DISABLE="1", CXX="true")
    assert switched_off["reason"] == "torch's compiler is switched off"
    assert {row["status"] for row in (backward, deterministic, switched_off)} == {"not run"}


def test_without_a_compiler_triton_or_flex_attention_it_is_not_loaded(programs: Programs) -> None:
    lines = (
        "import call_options",
        "def why(device):",
        "    try:",
        "        load_implementation('flex', device, '')",
        "    except call_options.NotRunError as error:",
        "        print(json.dumps(str(error)))",
        "why('cpu')",
        "why('cuda')",
        "sys.modules['torch.nn.attention.flex_attention'] = None",
        "torch.__version__ = '2.4.1'",
        "why('cpu')",
    )
    assert programs.run(*lines, CXX="absent-compiler") == [
        "no compiler: absent-compiler",
        "torch finds no Triton, which compiles FlexAttention",
        "torch 2.4.1 has no FlexAttention",
    ]
