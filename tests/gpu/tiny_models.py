"""Train tiny models of transformers with a flash-attn package, and compare with transformers' own eager attention.

    python -B tests/gpu/tiny_models.py MODULE cpu|cuda [--dtypes float16,bfloat16] [--models llama,...]
        [--limit 0.02] [--non-amd-gpu]

MODULE is flash_attn, or one that registers an attention of its own (flash_attention_amd.transformers).
On the CPU, an emulator of gfx942 executes the kernels of flash_attn, if it has any.
The weights are random, nothing is downloaded. The verdict on a model is right, refused (its error says that an option
is not supported), wrong, or crashed (any other exception). The report is JSON; the exit status is 1 if any model is
wrong or crashed, or if an option of a model has no effect, because then it was not tested.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

import torch

sys.path.append(str(Path(__file__).resolve().parent))
sys.path.append(str(Path(__file__).resolve().parents[2] / "src/wheelfactory/verify/programs"))

from without_amd_gpu import drop_amd_launch_options  # type: ignore[import-not-found]

Tensor: TypeAlias = Any
Model: TypeAlias = Any

RIGHT, REFUSED, WRONG, CRASHED = "right", "refused", "wrong", "crashed"

FLASH_ATTN = "flash_attn"

LIMIT = 0.02
"""The greatest relative difference of a result, in the Euclidean norm, unless ``--limit`` is another."""

NOISE_FACTOR = 3.0
"""A result may also differ by this multiple of the difference between eager attention in the dtype and in float32."""

LEAST_EFFECT = 5.0
"""An option must change the logits by this multiple of the limit."""

BATCH, LENGTH, VOCABULARY, PADDED = 2, 48, 96, (48, 29)
STEPS, RATE, LOSS_SCALE = 2, 0.05, 256.0  # gradients of float16 would be too small without a scale
PREFILL = 45
"""Tokens before decoding one at a time."""

INITIAL_RANGE = 0.15
"""The standard deviation of weights: with the usual 0.02, scores are so small that softmax hides faults."""

SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 128,
    "intermediate_size": 192,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "head_dim": 32,
    "max_position_embeddings": 128,
    "initializer_range": INITIAL_RANGE,
    "tie_word_embeddings": False,
}

OPTION_NAMES = re.compile("window|local|sliding|softcap|dtype|head.?dim|stride|layout", re.IGNORECASE)


@dataclass(frozen=True)
class TinyModel:
    """A model: the prefix of its classes in transformers, its configuration, and the option that it tests."""

    family: str
    config: Mapping[str, Any]
    option: Mapping[str, Any] = field(default_factory=dict)
    """Values that turn the tested option off; empty for no option."""


GROUPED = {"num_key_value_heads": 2}

MODELS = {
    "llama": TinyModel("Llama", {"num_attention_heads": 2, "num_key_value_heads": 2, "num_hidden_layers": 1}),
    "llama grouped": TinyModel("Llama", {**GROUPED, "num_hidden_layers": 1}),
    "mistral": TinyModel("Mistral", {**GROUPED, "sliding_window": 16}, {"sliding_window": None}),
    "gemma2": TinyModel(
        "Gemma2",
        {**GROUPED, "attn_logit_softcapping": 2.0, "query_pre_attn_scalar": 32, "sliding_window": 16},
        {"attn_logit_softcapping": None},
    ),
}


@dataclass(frozen=True)
class Results:
    """What a model computed."""

    logits: Tensor
    padded_logits: Tensor
    """Of a batch with padding, only the tokens."""
    decoded_logits: Tensor
    """Of tokens that were decoded one at a time, with a cache."""
    losses: list[float]
    """Before each step of training, and after the last one."""
    gradients: Mapping[str, Tensor]
    """Of every parameter."""
    padded_gradients: Mapping[str, Tensor]


@dataclass(frozen=True)
class Verdict:
    """The verdict on a model in a dtype."""

    model: str
    dtype: str
    kind: str
    reason: str = ""
    differences: Mapping[str, float] = field(default_factory=dict)
    """Relative differences from eager attention in float32: of gradients the median and the worst."""
    noise: Mapping[str, float] = field(default_factory=dict)
    """The same for eager attention in the dtype."""
    effect: float | None = None
    """How much the logits change without the tested option."""
    losses: Sequence[float] = ()
    eager_losses: Sequence[float] = ()


def make_model(tiny: TinyModel, attention: str, dtype: str, device: str, **changes: Any) -> Model:
    """Return a model with random weights, the same ones for each attention and dtype: those of bfloat16."""
    transformers = import_module("transformers")
    values = {**SIZES, **tiny.config, **changes, "attn_implementation": attention, "dtype": dtype}
    config = getattr(transformers, f"{tiny.family}Config")(**values)
    torch.manual_seed(0)
    model = getattr(transformers, f"{tiny.family}ForCausalLM")(config)
    if model.config._attn_implementation != attention:
        raise RuntimeError(f"transformers chose {model.config._attn_implementation} instead of {attention}")
    return model.to(torch.bfloat16).to(getattr(torch, dtype)).to(device)


def draw_tokens(device: str) -> tuple[Tensor, Tensor]:
    """Return token numbers (batch, length), and an attention mask with padding at the end."""
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(VOCABULARY, (BATCH, LENGTH), generator=generator)
    mask = torch.arange(LENGTH) < torch.tensor(PADDED)[:, None]
    return tokens.to(device), mask.long().to(device)


def compute(model: Model, device: str) -> Results:
    """Return everything that is compared."""
    tokens, mask = draw_tokens(device)
    labels = tokens.masked_fill(mask == 0, -100)
    padded = model(input_ids=tokens, attention_mask=mask, labels=labels)
    padded_gradients = take_gradients(model, padded.loss)
    output = model(input_ids=tokens, labels=tokens)
    gradients = take_gradients(model, output.loss)
    decoded = decode(model, tokens)
    return Results(
        output.logits.detach(),
        padded.logits.detach()[mask.bool()],
        decoded,
        train(model, tokens),
        gradients,
        padded_gradients,
    )


def take_gradients(model: Model, loss: Tensor) -> dict[str, Tensor]:
    """Return the gradients of all parameters and clear them."""
    (loss * LOSS_SCALE).backward()
    found = {name: parameter.grad.double() / LOSS_SCALE for name, parameter in model.named_parameters()}
    model.zero_grad()
    return found


@torch.no_grad()  # type: ignore[untyped-decorator,unused-ignore]
def decode(model: Model, tokens: Tensor) -> Tensor:
    """Return the logits of the last tokens, each computed alone with the cache of those before."""
    output = model(input_ids=tokens[:, :PREFILL], use_cache=True)
    logits = [output.logits[:, -1]]
    for position in range(PREFILL, LENGTH):
        step = tokens[:, position : position + 1]
        output = model(input_ids=step, past_key_values=output.past_key_values, use_cache=True)
        logits.append(output.logits[:, -1])
    return torch.stack(logits, 1)


def train(model: Model, tokens: Tensor) -> list[float]:
    """Train with plain gradient descent; return the loss before each step and after the last one."""
    losses = []
    for _ in range(STEPS):
        loss = model(input_ids=tokens, labels=tokens).loss
        losses.append(loss.item())
        (loss * LOSS_SCALE).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= parameter.grad * (RATE / LOSS_SCALE)
        model.zero_grad()
    with torch.no_grad():
        losses.append(model(input_ids=tokens, labels=tokens).loss.item())
    return losses


def difference(found: Tensor, true: Tensor) -> float:
    """Return the relative difference in the Euclidean norm; infinity if a number is not finite."""
    found, true = found.double(), true.double()
    size = float(true.norm())
    wrong = float((found - true).norm())
    return wrong / size if size and torch.isfinite(found).all() else float("inf")


def compare(found: Results, true: Results) -> dict[str, float]:
    """Return the relative difference of each result."""
    made = {
        "logits": difference(found.logits, true.logits),
        "padded logits": difference(found.padded_logits, true.padded_logits),
        "decoded logits": difference(found.decoded_logits, true.decoded_logits),
        "losses": difference(torch.tensor(found.losses), torch.tensor(true.losses)),
    }
    pairs = {
        "gradients": (found.gradients, true.gradients),
        "padded gradients": (found.padded_gradients, true.padded_gradients),
    }
    for name, (gradients, references) in pairs.items():
        each = [difference(gradients[parameter], reference) for parameter, reference in references.items()]
        made |= {f"{name}, median": statistics.median(each), f"{name}, worst": max(each)}
    return made


def check_model(name: str, dtype: str, device: str, attention: str, limit: float) -> Verdict:
    """Return the verdict on one model in one dtype with an attention of transformers."""
    tiny = MODELS[name]
    eager = {kind: compute(make_model(tiny, "eager", kind, device), device) for kind in ("float32", dtype)}
    effect = None
    if tiny.option:
        without = make_model(tiny, "eager", "float32", device, **tiny.option)
        effect = difference(without(input_ids=draw_tokens(device)[0]).logits.detach(), eager["float32"].logits)
    noise = compare(eager[dtype], eager["float32"])
    try:
        found = compute(make_model(tiny, attention, dtype, device), device)
    except Exception as error:
        return Verdict(name, dtype, *judge_exception(error), noise=noise, effect=effect)
    differences = compare(found, eager["float32"])
    limits = {key: max(limit, NOISE_FACTOR * noise[key]) for key in differences}
    wrong = [f"{key} differ by {part:.1e}" for key, part in differences.items() if not part <= limits[key]]
    reasons = [*wrong, *(["the option has no effect"] if effect is not None and effect < LEAST_EFFECT * LIMIT else [])]
    return Verdict(
        name,
        dtype,
        WRONG if reasons else RIGHT,
        "; ".join(reasons),
        differences,
        noise,
        effect,
        found.losses,
        eager["float32"].losses,
    )


def judge_exception(error: Exception) -> tuple[str, str]:
    """Return the verdict on an exception, and its text: refused if it says so or names an option."""
    named = type(error) in (ValueError, RuntimeError) and OPTION_NAMES.search(str(error))
    refused = isinstance(error, NotImplementedError) or bool(named)
    return REFUSED if refused else CRASHED, f"{type(error).__name__}: {error}"


def claim_a_gpu() -> None:
    """Stub transformers' check for a CUDA device. Whether it takes flash_attn is its own decision."""
    for name in ("transformers.utils.import_utils", "transformers.utils"):
        vars(import_module(name))["is_torch_cuda_available"] = lambda: True


def prepare_transformers(module: str, device: str) -> str:
    """Make transformers use a module on a device, and return the name of its attention.

    On a GPU, flash_attn is used as it is installed.
    """
    if module != FLASH_ATTN:
        return str(import_module(module).NAME)
    if device == "cpu":
        package = find_spec(FLASH_ATTN)  # of the package alone: its import must find the emulator
        if package and Path(str(package.origin)).with_name("flash_attn_triton_amd").is_dir():
            import_module("random_cases").use_emulator()
        claim_a_gpu()
    return "flash_attention_2"


def run_models(options: argparse.Namespace, attention: str) -> Iterator[Verdict]:
    """Yield the verdict on every model in every dtype."""
    for dtype in options.dtypes.split(","):
        for name in options.models.split(","):
            verdict = check_model(name, dtype, options.device, attention, options.limit)
            sys.stderr.write(f"{name} {dtype}: {verdict.kind} {verdict.reason}\n")
            yield verdict


def main(arguments: Sequence[str]) -> int:
    """Run all models, print the report, and return the exit status."""
    parser = argparse.ArgumentParser()
    parser.add_argument("module")
    parser.add_argument("device", choices=["cpu", "cuda"])
    parser.add_argument("--dtypes", default="float16")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--limit", type=float, default=LIMIT)
    parser.add_argument("--non-amd-gpu", action="store_true")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    dropped = drop_amd_launch_options() if options.non_amd_gpu else set()
    attention = prepare_transformers(options.module, options.device)
    verdicts = list(run_models(options, attention))
    report = {
        "module": options.module,
        "torch": torch.__version__,
        "transformers": import_module("transformers").__version__,
        "limit": options.limit,
        "models": [asdict(verdict) for verdict in verdicts],
        "dropped": sorted(dropped),
    }
    sys.stdout.write(f"\n{json.dumps(report)}\n")
    return int(any(verdict.kind in (WRONG, CRASHED) for verdict in verdicts))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
