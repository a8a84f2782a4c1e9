"""What the doctor knows of the matrix, and the program it asks torch with, as they are written into doctor.py."""

from __future__ import annotations

from wheelfactory.core.checkout import MATRIX, TOOLCHAIN_PROBE
from wheelfactory.doctor.facts import DoctorFacts
from wheelfactory.matrix.load import load_matrix
from wheelfactory.site.doctor_facts import doctor_facts

WRITTEN = doctor_facts(load_matrix(MATRIX))
FACTS = DoctorFacts.parse(WRITTEN)
PROBE_TEXT = TOOLCHAIN_PROBE.read_text(encoding="utf-8")
