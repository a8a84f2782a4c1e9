"""Run an installed flash-attn, or a wheel, on this machine and report what it computed on which hardware."""
