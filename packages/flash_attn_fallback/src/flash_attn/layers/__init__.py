"""The layers that programs import from flash-attn."""
