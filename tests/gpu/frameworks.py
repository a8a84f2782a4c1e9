"""Print which programs take the installed flash_attn, and the errors of what they compute with it, as JSON.

    python -B tests/gpu/frameworks.py [DTYPE]

transformers and diffusers decide by their own code, where only transformers' check for a GPU is replaced. vLLM and
ComfyUI are not installed: their conditions are repeated here from the sources that are named. Without DTYPE, nothing
is computed.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias
from unittest.mock import patch

import torch

sys.path.append(str(Path(__file__).resolve().parent))

from tiny_models import MODELS, difference, make_model, prepare_transformers  # type: ignore[import-not-found]

Tensor: TypeAlias = Any

EAGER = "_native_math"
"""diffusers' backend that computes with torch's plain operations."""

TRITON_VARIABLE = "FLASH_ATTENTION_TRITON_AMD_ENABLE"

HEADS, DIM, TOKENS = 2, 16, 12

ARCHS = ("gfx942", "gfx1100")
"""One for each of vLLM's conditions."""


def make_flux() -> Any:
    """Return a tiny Flux transformer with random weights."""
    return import_module("diffusers").FluxTransformer2DModel(
        patch_size=1,
        in_channels=4,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=DIM,
        num_attention_heads=HEADS,
        joint_attention_dim=32,
        pooled_projection_dim=32,
        axes_dims_rope=(4, 4, 8),
    )


def run_diffusers(backend: str, dtype: torch.dtype) -> Tensor:
    """Return the output and the gradients of a tiny Flux transformer in one row.

    Raises RuntimeError if the backend does not decide whether flash_attn computes.
    """
    torch.manual_seed(0)
    model = make_flux().to(dtype)
    model.set_attention_backend(backend)
    given = {
        "hidden_states": torch.randn(2, TOKENS, 4),
        "encoder_hidden_states": torch.randn(2, 5, 32),
        "pooled_projections": torch.randn(2, 32),
        "timestep": torch.rand(2),
    }
    places = {"img_ids": torch.rand(TOKENS, 3), "txt_ids": torch.rand(5, 3)}
    dispatch = import_module("diffusers.models.attention_dispatch")
    with patch.object(dispatch, "flash_attn_func", wraps=dispatch.flash_attn_func) as called:
        out = model(**{name: value.to(dtype) for name, value in given.items()}, **places).sample
    if called.call_count != {EAGER: 0, "flash": 2}[backend]:
        raise RuntimeError(f"with backend {backend}, diffusers called flash_attn {called.call_count} times")
    out.square().sum().backward()
    gradients = [parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None]
    return torch.cat([out.detach().flatten(), *gradients])


def is_taken_by_vllm(arch: str) -> bool:
    """Whether vLLM computes a vision encoder with flash_attn: vllm/platforms/rocm.py at 001eda31, without aiter."""
    if arch.startswith("gfx9"):
        return find_spec("flash_attn") is not None
    triton = find_spec("flash_attn") is not None and find_spec("flash_attn.flash_attn_triton_amd") is not None
    return triton and os.environ.get(TRITON_VARIABLE) == "TRUE"


def run_vllm(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Compute as vLLM's vision encoders call: vllm/v1/attention/backends/fa_utils.py at 00bd1493."""
    compute = import_module("flash_attn").flash_attn_varlen_func
    batch, length = q.shape[:2]
    starts = torch.arange(0, (batch + 1) * length, length, dtype=torch.int32)
    packed = {"cu_seqlens_q": starts, "cu_seqlens_k": starts, "max_seqlen_q": length, "max_seqlen_k": length}
    out = compute(*(tensor.flatten(0, 1) for tensor in (q, k, v)), **packed, dropout_p=0.0, causal=False)
    return out.unflatten(0, (batch, length))


def run_comfyui(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Compute as ComfyUI does, by an operator of its own: comfy/ldm/modules/attention.py at 05080f60.

    Its heads come before the tokens. Raises an error if the output has other strides than it says, as for `q`.
    """
    compute = import_module("flash_attn").flash_attn_func

    @torch.library.custom_op("comfyui::attention", mutates_args=())  # type: ignore[untyped-decorator,unused-ignore]
    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = compute(q, k, v, dropout_p=0.0, causal=False, softmax_scale=None)
        return result

    attention.register_fake(lambda q, *_: torch.empty_strided(q.shape, q.stride(), dtype=q.dtype))
    given = tuple(tensor.transpose(1, 2).contiguous().transpose(1, 2) for tensor in (q, k, v))
    torch.library.opcheck(attention, given, test_utils="test_faketensor")
    return attention(*given)


def measure(dtype: torch.dtype) -> dict[str, float]:
    """Return the relative error of each program: of diffusers from its eager backend, of the others from torch's."""
    q, k, v = torch.randn(3, 2, TOKENS, HEADS, DIM).to(dtype)
    true = torch.nn.functional.scaled_dot_product_attention(*(each.double().transpose(1, 2) for each in (q, k, v)))
    found = {"vllm": run_vllm(q, k, v), "comfyui": run_comfyui(q, k, v)}
    flux = difference(run_diffusers("flash", dtype), run_diffusers(EAGER, torch.float32))
    return {"diffusers": flux, **{name: difference(out, true.transpose(1, 2)) for name, out in found.items()}}


def find_programs() -> list[str]:
    """Return the programs that take flash_attn. Where one but vLLM does not, an error is raised."""
    make_model(MODELS["llama"], prepare_transformers("flash_attn", "cpu"), "float32", "cpu")
    dispatch = import_module("diffusers.models.attention_dispatch")
    dispatch._check_attention_backend_requirements(dispatch.AttentionBackendName.FLASH)
    from flash_attn import flash_attn_func, flash_attn_varlen_func  # noqa: F401  # as ComfyUI and vLLM do

    return ["transformers", "diffusers", "comfyui", *(f"vllm {arch}" for arch in ARCHS if is_taken_by_vllm(arch))]


def main(dtypes: list[str]) -> None:
    """Print the report."""
    torch.set_num_threads(1)
    report: dict[str, Any] = {"taken": find_programs()}
    if dtypes:
        report["errors"] = measure(getattr(torch, dtypes[0]))
    sys.stdout.write(f"\n{json.dumps(report)}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
