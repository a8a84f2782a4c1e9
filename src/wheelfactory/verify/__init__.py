"""Verification: a wheel and its cell in, one result a gate out; nothing is published that a gate refuses."""

from __future__ import annotations

from wheelfactory.verify.gate import GateResult, Status, Subject
from wheelfactory.verify.gates import REQUIRED, verify

__all__ = ["REQUIRED", "GateResult", "Status", "Subject", "verify"]
