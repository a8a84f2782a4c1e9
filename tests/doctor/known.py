"""The matrix, and the facts and the torch probe that doctor.py embeds."""

from __future__ import annotations

from wheelfactory.core.files import MATRIX, TOOLCHAIN_PROBE
from wheelfactory.doctor.facts import DoctorFacts
from wheelfactory.matrix.load import load_matrix
from wheelfactory.site.doctor_file import doctor_facts

KNOWN = load_matrix(MATRIX)
WRITTEN = doctor_facts(KNOWN)
FACTS = DoctorFacts.parse(WRITTEN)
PROBE_TEXT = TOOLCHAIN_PROBE.read_text(encoding="utf-8")
