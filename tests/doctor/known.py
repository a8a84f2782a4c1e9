"""What the doctor knows of the matrix, as it is written into doctor.py."""

from __future__ import annotations

from wheelfactory.core.checkout import MATRIX
from wheelfactory.doctor.facts import Facts
from wheelfactory.matrix.load import load_matrix
from wheelfactory.site.doctor_facts import doctor_facts

WRITTEN = doctor_facts(load_matrix(MATRIX))
FACTS = Facts.parse(WRITTEN)
