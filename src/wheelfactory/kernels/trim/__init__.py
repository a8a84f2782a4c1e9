"""Leave out kernels that flash-attn's bindings cannot call, with a proof for each release's sources."""
