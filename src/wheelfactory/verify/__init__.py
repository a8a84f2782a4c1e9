"""Verification: a wheel and its cell in, one result a gate out; nothing is published that a gate refuses."""
