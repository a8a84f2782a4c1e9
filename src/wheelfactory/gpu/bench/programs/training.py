"""Trains a small transformer with one implementation of attention and times its steps; prints JSON.

    python -I -B training.py NAME cpu|cuda FALLBACK CONFIG

NAME is one of `implementations`, FALLBACK the folder of the fallback's sources, CONFIG the sizes as JSON.
The caller's environment variables select flash-attn's backend.

A step is forward, backward and AdamW in mixed precision: weights in float32, products in the dtype of CONFIG. Model,
data and seed are the same for each implementation, so all start at the same loss. The second half of each sequence
repeats the first, which only attention can learn.

Time: each step between two device events, read after the last step so that no step waits. On the CPU, wall-clock time
replaces them. Memory: the peak of torch's allocator during the timed steps, weights included.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

# isolated mode (-I) drops the program's folder from sys.path; what enters flash-attn is shared with verify/programs
sys.path += [str(Path(__file__).resolve().parents[up] / place) for up, place in ((0, ""), (3, "verify/programs"))]

from call_options import CallOptions  # type: ignore[import-not-found]  # by the path above, as the next
from implementations import (  # type: ignore[import-not-found]
    Attention,
    LoadedImplementation,
    find_backend_symbol,
    run_program,
)

SEED = 20
VOCABULARY = 1024
LEARNING_RATE = 3e-4
CAUSAL = CallOptions(causal=True)

Tensor = Any


class Block(nn.Module):  # type: ignore[misc] # torch is not installed where mypy runs
    """Causal attention, then an MLP four times as wide, each with a layer norm before it and a residual around it."""

    def __init__(self, width: int, heads: int, attention: Attention) -> None:
        super().__init__()
        self.heads, self.attention = heads, attention
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inner, self.outer = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, hidden: Tensor) -> Tensor:
        """(batch, tokens, width) -> the same."""
        packed = self.inner(self.before_attention(hidden)).unflatten(-1, (3, self.heads, -1))
        queries, keys, values = packed.unbind(2)
        hidden = hidden + self.outer(self.attention(queries, keys, values, CAUSAL).flatten(2))
        return hidden + self.mlp(self.before_mlp(hidden))


class Transformer(nn.Module):  # type: ignore[misc] # likewise
    """Token ids -> scores of the next token."""

    def __init__(self, config: dict[str, Any], attention: Attention) -> None:
        super().__init__()
        width = config["d_model"]
        self.tokens, self.places = nn.Embedding(VOCABULARY, width), nn.Embedding(config["seq_len"], width)
        blocks = [Block(width, config["n_heads"], attention) for _ in range(config["n_layers"])]
        self.blocks, self.norm, self.head = nn.Sequential(*blocks), nn.LayerNorm(width), nn.Linear(width, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        """(batch, tokens) -> (batch, tokens, vocabulary)."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return self.head(self.norm(self.blocks(self.tokens(tokens) + self.places(places))))


class Training:
    """A model with its data, ready for steps."""

    def __init__(self, config: dict[str, Any], attention: Attention, device: str) -> None:
        torch.manual_seed(SEED)  # before .to(device): weights and data are drawn on the CPU, the same for every device
        self.model = Transformer(config, attention).to(device)
        half = torch.randint(VOCABULARY, (config["batch_size"], config["seq_len"] // 2 + 1))
        self.data = torch.cat([half, half], 1)[:, : config["seq_len"] + 1].to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=LEARNING_RATE)
        self.device, self.dtype = device, getattr(torch, config["dtype"])
        # float16 gradients below 6e-8 would become 0 without scaling; bfloat16 does not need it
        self.scaler = torch.amp.GradScaler(device, enabled=self.dtype is torch.float16)

    def step(self) -> Tensor:
        """Run one step and return the loss before it."""
        with torch.autocast(self.device, dtype=self.dtype):
            scores = self.model(self.data[:, :-1])
            loss = nn.functional.cross_entropy(scores.flatten(0, 1), self.data[:, 1:].flatten())
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()


def time_steps(training: Training, count: int) -> tuple[list[float], list[Tensor]]:
    """Run `count` steps; return their milliseconds and losses."""
    on_gpu = training.device == "cuda"

    def mark() -> Any:
        if not on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    marks, losses = [mark()], []
    for _ in range(count):
        losses.append(training.step())
        marks.append(mark())
    if on_gpu:
        torch.cuda.synchronize()
        return [marks[place].elapsed_time(marks[place + 1]) for place in range(count)], losses
    return [(marks[place + 1] - marks[place]) * 1000 for place in range(count)], losses


def measure(implementation: LoadedImplementation, config: dict[str, Any], device: str) -> Iterator[dict[str, Any]]:
    """Warm up, then time the steps."""
    training = Training(config, implementation.function, device)
    losses = []
    symbol = find_backend_symbol(implementation, lambda: losses.append(training.step()))
    for _ in range(config["warmup_steps"] - 1):
        training.step()
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    milliseconds, more = time_steps(training, config["timed_steps"])
    first, last = float(losses[0]), float(more[-1])
    if not (math.isfinite(first) and math.isfinite(last)):
        yield {"symbol": symbol, "status": "failed", "reason": "the loss is not finite"}
        return
    peak = torch.cuda.max_memory_allocated() / 2**20 if device == "cuda" else None
    measured = {"step_times_ms": milliseconds, "peak_mib": peak, "loss_first": first, "loss_last": last}
    yield {"symbol": symbol, "status": "measured", **measured}


if __name__ == "__main__":
    run_program(measure, *sys.argv[1:])
