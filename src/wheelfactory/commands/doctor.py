"""`wheelfactory doctor`."""

from __future__ import annotations

import argparse

from wheelfactory.commands.options import Environ, default_matrix, show, tell
from wheelfactory.commands.targets import repository_of
from wheelfactory.core.checkout import PROBE
from wheelfactory.doctor.facts import Facts
from wheelfactory.doctor.program import EXIT_CODES, add_options, perform
from wheelfactory.gpu.torch_python import users_python
from wheelfactory.matrix.load import load_matrix
from wheelfactory.site.advice import pages_of
from wheelfactory.site.doctor_facts import doctor_facts


def add(parser: argparse.ArgumentParser) -> None:
    """The command's options: those of the doctor; SITE may be github:OWNER/REPO too, for the Pages of a repository."""
    add_options(parser)
    parser.epilog = f"SITE may be github:OWNER/REPO, for what its Pages serve. {EXIT_CODES}"


def execute(options: argparse.Namespace, environ: Environ) -> int:
    """Examine the Python that the user works with, not the one that this runs in."""
    site = options.site or ""
    repository = repository_of(site)
    site = pages_of(repository) if repository else site
    facts = Facts.parse(doctor_facts(load_matrix(default_matrix())))
    python = options.python or users_python(environ)
    return perform(options, python, facts, PROBE.read_text(encoding="utf-8"), site, environ, show=show, tell=tell)
