"""The facts about the matrix and the gates that ``doctor.py`` contains, as JSON."""

from __future__ import annotations

import json

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from wheelfactory.build.fallback import read_fallback_project
from wheelfactory.core.cell import Backend, major_minor, public_version
from wheelfactory.matrix.facts import Matrix
from wheelfactory.site.support_tables import support_tables
from wheelfactory.verify.gates import required_gates


def doctor_facts(matrix: Matrix) -> str:
    """Return the JSON for `DoctorFacts.parse`. Raises `InputError` if the fallback's project is missing."""
    # the one requirement of the fallback is ``torch>=2.5``
    ((fallback_torch,),) = (Requirement(line).specifier for line in read_fallback_project().requires)
    torches = sorted(matrix.torch.items(), key=lambda entry: Version(entry[0]), reverse=True)
    facts = {
        "windows": {
            public_version(name): _bounds(release.triton.window)
            for name, release in matrix.flash_attn.items()
            if release.triton
        },
        "torches": [
            (version, (min(torch.python, key=major_minor), max(torch.python, key=major_minor)), torch.triton_package)
            for version, torch in torches
        ],
        "fallback_torch": fallback_torch.version,
        "required": {str(backend): required_gates(backend) for backend in Backend},
        "support": support_tables(matrix).as_json(),
    }
    return json.dumps(facts)


def _bounds(window: str) -> list[str]:
    """Both versions of ``>=3.2.0,<3.9``, the form of every window (`matrix.facts.TritonWindow`)."""
    return [bound.version for bound in sorted(SpecifierSet(window), key=lambda bound: Version(bound.version))]
