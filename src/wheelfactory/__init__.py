"""Build, verify and publish flash-attn wheels for AMD ROCm."""
