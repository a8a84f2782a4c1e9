"""`wheelfactory doctor`."""

from __future__ import annotations

import argparse

from wheelfactory.commands.options import default_matrix, print_messages, print_results
from wheelfactory.commands.targets import parse_repository
from wheelfactory.core.files import TOOLCHAIN_PROBE
from wheelfactory.doctor.facts import DoctorFacts
from wheelfactory.doctor.program import EXIT_CODES, add_options, diagnose_and_report
from wheelfactory.gpu.torch_python import find_user_python
from wheelfactory.matrix.load import load_matrix
from wheelfactory.site.doctor_file import doctor_facts
from wheelfactory.site.index import github_pages_url


def add(parser: argparse.ArgumentParser) -> None:
    """Add the doctor's options; here SITE can also be ``github:OWNER/REPO``."""
    add_options(parser, ("wheelfactory", "doctor"))
    parser.epilog = (
        "Without SITE only the machine is examined; SITE can be github:OWNER/REPO, for the site on its GitHub Pages. "
        f"Without --python the active environment is examined.\n{EXIT_CODES}"
    )


def execute(options: argparse.Namespace) -> int:
    """Examine the user's active Python, not the Python that runs wheelfactory."""
    site = options.site or ""
    repository = parse_repository(site)
    site = github_pages_url(repository) if repository else site
    facts = DoctorFacts.parse(doctor_facts(load_matrix(default_matrix())))
    python = options.python or find_user_python(options.environ)
    probe, show, tell = TOOLCHAIN_PROBE.read_text(encoding="utf-8"), print_results, print_messages
    return diagnose_and_report(options, python, facts, probe, site, show=show, tell=tell)
