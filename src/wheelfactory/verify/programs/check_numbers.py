"""Compare the attention of an installed package with a float64 reference, and print a JSON report.

    python -I -B check_numbers.py flash_attn|flash_attention_amd cpu|cuda small|full [--non-amd-gpu] [PATTERN ...]

It calls the public functions as users do. With --non-amd-gpu the kernels for AMD run on a GPU of another vendor (see
non_amd_gpu.py). Without a GPU, execute_kernels.py runs the kernels of flash_attn.

The report has two errors for each result: of the package, and of the same formula with every intermediate result
rounded to the dtype of the inputs, forward and backward. The second is what a correct implementation may have. A case
that the package refuses has the message instead. PATTERN skips the backward pass of matching cases, !PATTERN skips
the cases.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from fnmatch import fnmatchcase
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

sys.path.append(str(Path(__file__).resolve().parent))  # isolated mode leaves out the folder of the program

from attention_calls import (  # type: ignore[import-not-found]
    counting_calls,
    find_backend,
    guarded,
    public_function,
    require_guards,
)
from attention_cases import SMALL, SUITES, AttentionCase  # type: ignore[import-not-found]
from attention_reference import (  # type: ignore[import-not-found]
    DROPOUT,
    Attention,
    Tensor,
    by_sequence,
    rounding_to,
)
from without_amd_gpu import drop_amd_launch_options  # type: ignore[import-not-found]

BACKEND_FUNCTIONS = ("fwd", "bwd", "varlen_fwd", "varlen_bwd", "fwd_kvcache")
"""The functions of a backend that flash_attn calls."""

PUBLIC_FUNCTIONS: tuple[str, ...] = ("flash_attn_func", "flash_attn_varlen_func", "flash_attn_with_kvcache")
"""The functions that this program calls; counted for a package without a separate backend."""

RESULTS = ("output", "log-sum-exp", "dq", "dk", "dv")


@cache
def draw(case: AttentionCase) -> tuple[Tensor, ...]:
    """Draw normal queries, keys, values and output gradients; the small suite has the same numbers with every torch."""
    numbers = random.Random(case.name)  # noqa: S311
    generator = torch.Generator().manual_seed(numbers.getrandbits(32)) if case not in SMALL else None
    stored = sum(case.cache or length for length in case.keys)
    heads = (case.heads, case.groups, case.groups, case.heads)
    lengths = (sum(case.queries), stored, stored, sum(case.queries))
    shapes = [(length, count, case.dim) for length, count in zip(lengths, heads, strict=True)]
    if generator:  # Python's generator needs 0.1 s for each tensor
        return tuple(torch.randn(shape, generator=generator) for shape in shapes)
    return tuple(torch.tensor([numbers.gauss(0, 1) for _ in range(math.prod(shape))]).view(shape) for shape in shapes)


def make_tensors(case: AttentionCase, dtype: Any, device: str) -> list[Tensor]:
    """Return guarded queries, keys and values, and the gradient of the output."""
    drawn = [tensor.to(device, dtype) for tensor in draw(case)]
    if case.shift:
        drawn[0], drawn[1] = drawn[0] * 0.1 + case.shift, drawn[1] * 0.1 - case.shift
    if case.dropout:  # the output is the weights then, and shows which are dropped
        drawn[2] = torch.eye(case.dim, dtype=dtype, device=device)[:, None].expand_as(drawn[2])
    gradient = drawn[3]
    if case.layouts[3] == "expanded":
        return [*map(guarded, drawn[:3]), gradient[:1, :1].expand_as(gradient)]
    return [guarded(tensor) for tensor in drawn]


def run_case(function: Attention, tensors: Sequence[Tensor], *, backward: bool) -> dict[str, Tensor]:
    """Return the results of a function by name, with `backward` the gradients too."""
    arguments = [tensor.detach().requires_grad_(backward) for tensor in tensors[:3]]
    output, sums = function(*arguments)
    if backward:
        output.backward(tensors[3].to(output.dtype))
    found = (output.detach(), sums, *(argument.grad for argument in arguments))
    return {name: result for name, result in zip(RESULTS, found, strict=True) if result is not None}


def find_kept(function: Attention, tensors: Sequence[Tensor]) -> Tensor:
    """Return the weights that dropout keeps after this seed: (heads, queries, keys).

    Raises ValueError if two calls drop the same weights, or not the share that the case asks for.
    """

    def kept() -> Tensor:
        return (run_case(function, tensors, backward=False)["output"] != 0).transpose(0, 1)

    other = kept()
    torch.manual_seed(1)
    found = kept()
    if torch.equal(found, other):
        raise ValueError("two calls drop the same weights")
    if abs(1 - DROPOUT - float(found.double().mean())) > 0.05:
        raise ValueError(f"dropout keeps {float(found.double().mean()):.0%} of the weights")
    torch.manual_seed(1)
    return found


def measure_errors(
    module: str, case: AttentionCase, dtype: Any, device: str, *, backward: bool
) -> dict[str, tuple[float, float]]:
    """Return for each result of a case its largest error, and the largest error of rounding.

    Raises ValueError if the call wrote outside of its tensors.
    """
    tensors = make_tensors(case, dtype, device)
    exact = [tensor.double() for tensor in tensors]
    function = public_function(module, case, device)
    if max(case.keys) > case.cache > 0:  # the append of a row after the end has no result, and may raise an error
        with suppress(ValueError, IndexError):
            run_case(function, tensors, backward=False)
        require_guards(tensors[:3])
        return {"memory": (0.0, 0.0)}
    kept = find_kept(function, tensors) if case.dropout else None
    found = run_case(function, tensors, backward=backward)
    require_guards(tensors[:3])
    true = run_case(by_sequence(case, dtype, lambda result: result, kept), exact, backward=backward)
    near = run_case(by_sequence(case, dtype, rounding_to(dtype), kept), exact, backward=backward)

    def greatest_error(numbers: Tensor, truth: Tensor) -> float:
        return float((numbers.double() - truth).masked_fill(numbers.double() == truth, 0).abs().max())

    return {
        name: (greatest_error(result, true[name]), greatest_error(near[name], true[name]))
        for name, result in found.items()
    }


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Return whether a name matches a pattern."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def choose(suite: str, device: str) -> Iterator[tuple[str, AttentionCase, str]]:
    """Yield name, case and dtype of every case of the suite in every dtype."""
    for dtype in ("float16", "bfloat16", "float32"):
        for case in SUITES[suite]:
            far = case.far and device != "cpu"  # takes no memory on a CPU only
            if dtype == (case.dtype or dtype) and (case.dtype or dtype != "float32") and not far:
                yield f"{case.name} {dtype}", case, dtype


def report_case(
    module: str, name: str, case: AttentionCase, dtype: str, device: str, *, backward: bool
) -> dict[str, Any]:
    """Return the report of a case: its errors or the exception; with `backward` also the errors of gradients."""
    sys.stderr.write(f"at: {name}\n")  # names the case if a kernel crashes the process
    errors, error, refused = {}, None, None
    try:
        errors = measure_errors(module, case, getattr(torch, dtype), device, backward=backward and case.has_gradients)
    except Exception as caught:
        lines = str(caught).strip().splitlines() or [""]
        # upstream's own refusals are of other types; options.yaml says which options may be refused
        if isinstance(caught, NotImplementedError) or (case.option and "support" in str(caught)):
            refused = lines[0]
        else:
            error = f"{type(caught).__name__}: {lines[-1]}"
    return {"name": name, "errors": errors, "option": case.option, "exception": error, "refused": refused}


def accept_cpu_tensors() -> None:
    """Make flash_attn accept CPU tensors."""
    # flash_attn requires slopes on a GPU, and enters the GPU of its tensors to rotate them
    torch.Tensor.is_cuda = property(lambda _: True)
    torch.cuda.device = lambda _: nullcontext()
    # flash_attn registers its operators for GPUs only, and torch's dispatcher would reject CPU tensors
    custom_op = torch.library.custom_op
    torch.library.custom_op = lambda *names, **options: custom_op(*names, **{**options, "device_types": None})


def find_gpu() -> str | None:
    """Return the arch of torch's GPU: ``gfx942``, ``sm_90``; or None."""
    if not torch.cuda.is_available():
        return None
    gpu = torch.cuda.get_device_properties(0)
    return str(gpu.gcnArchName).partition(":")[0] if torch.version.hip else f"sm_{gpu.major}{gpu.minor}"


def run_cases(
    module: str, suite: str, device: str, patterns: Sequence[str], run: Callable[..., dict[str, Any]] = report_case
) -> dict[str, Any]:
    """Return the report of a suite: of every case that is not skipped, and of the module that computed them.

    `run` reports a case; one failure does not stop the others. Without the GPU that is requested, there are no cases.
    """
    package = import_module(module)
    interface_module, backend, functions = package, package, PUBLIC_FUNCTIONS
    if module == "flash_attn":
        interface_module = find_backend(import_module("flash_attn.flash_attn_interface"))
        functions = BACKEND_FUNCTIONS
        # the module that defines it: the Triton wheel only re-exports
        backend = sys.modules[interface_module.fwd.__module__]
    gpu, triton = find_gpu(), sys.modules.get("triton")
    skipped = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
    chosen = list(choose(suite, device)) if gpu or device == "cpu" else []
    with counting_calls(interface_module, functions) as calls:
        cases = [
            run(module, name, case, dtype, device, backward=not matches(name, patterns))
            for name, case, dtype in chosen
            if not matches(name, skipped)
        ]
    return {
        "torch": torch.__version__,
        "triton": triton and triton.__version__,
        "gpu": gpu,
        "backend": backend.__name__,
        "file": str(Path(str(backend.__file__)).resolve()),
        "from_wheel": Path(str(backend.__file__)).is_relative_to(sys.prefix),
        "cases": cases,
        "left_out": [name for name, _, _ in chosen if matches(name, skipped)],
        "call_counts": calls,
    }


def main(options: argparse.Namespace) -> None:
    """Run all cases and print the report."""
    dropped = drop_amd_launch_options() if options.non_amd_gpu else set()
    report = run_cases(options.module, options.suite, options.device, options.patterns)
    sys.stdout.write(f"\n{json.dumps({**report, 'dropped': sorted(dropped)})}\n")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line; patterns may follow the option."""
    parser = argparse.ArgumentParser()
    parser.add_argument("module", choices=["flash_attn", "flash_attention_amd"])
    parser.add_argument("device", choices=["cpu", "cuda"])
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("--non-amd-gpu", action="store_true")
    parser.add_argument("patterns", nargs="*", metavar="PATTERN")
    return parser.parse_intermixed_args(arguments)


if __name__ == "__main__":
    main(parse(sys.argv[1:]))
