"""The facts about the matrix and the gates that ``doctor.py`` contains, as JSON."""

from __future__ import annotations

import json
from dataclasses import astuple

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from wheelfactory.build.fallback import read_fallback_project
from wheelfactory.core.cell import Backend, major_minor, public_version
from wheelfactory.doctor.facts import DoctorFacts, TorchFacts
from wheelfactory.matrix.facts import Matrix
from wheelfactory.site.support_tables import support_tables
from wheelfactory.verify.gates import required_gates


def doctor_facts(matrix: Matrix) -> str:
    """Return the JSON for `DoctorFacts.parse`. Raises `InputError` if the fallback's project is missing."""
    # the one requirement of the fallback is ``torch>=2.5``
    ((fallback_torch,),) = (Requirement(line).specifier for line in read_fallback_project().requires)
    facts = DoctorFacts(
        triton_windows={
            public_version(name): _bounds(release.triton.window)
            for name, release in matrix.flash_attn.items()
            if release.triton
        },
        torches=tuple(
            TorchFacts(
                major_minor(version),
                (min(map(major_minor, torch.python)), max(map(major_minor, torch.python))),
                torch.triton_package,
            )
            for version, torch in sorted(matrix.torch.items(), key=lambda entry: Version(entry[0]), reverse=True)
        ),
        fallback_torch=major_minor(fallback_torch.version),
        required_gates={str(backend): required_gates(backend) for backend in Backend},
        support=support_tables(matrix),
    )
    return json.dumps(
        {**vars(facts), "torches": [astuple(known) for known in facts.torches], "support": facts.support.as_json()}
    )


def _bounds(window: str) -> tuple[tuple[int, int], tuple[int, int]]:
    """Both versions of ``>=3.2.0,<3.9``, the form of every window (`matrix.facts.TritonWindow`)."""
    first, end = sorted(major_minor(bound.version) for bound in SpecifierSet(window))
    return first, end
