"""Compile models of one layer of transformers with the fallback, and print their difference from eager attention.

    python -B compiled_models.py

Each model is one graph, for a batch, and for a row that
holds two sequences. The printed number is the greatest relative difference of logits and gradients.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import torch

SIZES = {
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "sliding_window": 4,
}


def compute(attention: str, tokens: Any, positions: Any) -> list[Any]:
    """Return the logits and the gradients of all parameters, the same model for each attention."""
    transformers = import_module("transformers")
    torch.manual_seed(0)
    model = transformers.MistralForCausalLM(transformers.MistralConfig(**SIZES, attn_implementation=attention))
    run = model if attention == "eager" else torch.compile(model, fullgraph=True, backend="aot_eager")
    logits = run(input_ids=tokens, position_ids=positions, use_cache=False).logits
    return [logits, *torch.autograd.grad(logits.square().sum(), list(model.parameters()))]


def main() -> None:
    """Print the greatest difference."""
    fallback = import_module("flash_attention_amd.transformers")
    tokens = torch.arange(20).reshape(2, 10)
    two = torch.cat([torch.arange(4), torch.arange(6)])[None]
    worst = 0.0
    for given in ((tokens, None), (tokens[:1], two)):
        torch._dynamo.reset()
        pairs = zip(compute(fallback.NAME, *given), compute("eager", *given), strict=True)
        worst = max(worst, *(float(((found - true).norm() / true.norm()).detach()) for found, true in pairs))
    sys.stdout.write(f"{worst}\n")


if __name__ == "__main__":
    main()
