"""Validation: an installed flash-attn or a wheel in, what it computed on which hardware out, as one report."""
