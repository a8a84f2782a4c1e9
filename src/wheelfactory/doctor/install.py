"""The wheel that fits -> installed after asking, and imported to see that it works."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace

from wheelfactory.core.errors import DONE, FAILED, FactoryError
from wheelfactory.core.installer import Command
from wheelfactory.doctor.detect import IMPORT_SECONDS
from wheelfactory.doctor.diagnose import diagnose
from wheelfactory.doctor.facts import Facts
from wheelfactory.doctor.installed import read_installed
from wheelfactory.doctor.machine import Machine
from wheelfactory.doctor.report import Offer, Report, managed_trouble


def install_best(report: Report, facts: Facts, environ: Mapping[str, str], show: Callable[[str], None]) -> int:
    """Run the command of the best wheel, if the answer on stdin is yes; gives the exit code.

    That is `DONE` if the wheel is installed and imports in the end. Raises `FactoryError` if there is no answer,
    nothing to install with, or the installation fails.
    """
    if not report.offers:
        show("")
        show("Nothing was installed, as no wheel fits.")
        return FAILED
    if report.offers[0].installed:
        return DONE
    command = _command(report.machine, report.offers[0], environ)
    show("")
    show(shlex.join(command))
    if not _is_wanted():
        show("Nothing was installed.")
        return FAILED
    code = subprocess.call(command, env=dict(environ))
    if code:
        raise FactoryError("the installation failed", f"{command[0]} ended with exit code {code}", "it said why above")
    return _check(report.machine, facts, environ, show)


def _command(machine: Machine, offer: Offer, environ: Mapping[str, str]) -> Command:
    """By pip, or by uv in an environment without pip."""
    if machine.python.managed:
        raise FactoryError("cannot install", *managed_trouble(machine.python))
    if machine.python.pip is not None:
        return offer.pip
    if shutil.which("uv", path=environ.get("PATH")) is None:
        hint = f"{machine.python.executable} -m ensurepip"
        raise FactoryError(
            "nothing to install with", f"neither pip in {machine.python.executable} nor uv on PATH", hint
        )
    return offer.uv


def _is_wanted() -> bool:
    """Whether the answer is yes. Raises `FactoryError` if nobody answers."""
    sys.stdout.flush()
    sys.stderr.write("Install it? [y/N] ")
    sys.stderr.flush()
    answer = sys.stdin.readline() if sys.stdin else ""
    if not answer:
        sys.stderr.write("\n")
        raise FactoryError(
            "nothing was installed", "nobody answered", "run the line above, or pipe the answer: echo y |"
        )
    return answer.strip().lower() in ("y", "yes")


def _check(machine: Machine, facts: Facts, environ: Mapping[str, str], show: Callable[[str], None]) -> int:
    """Import what was installed, and say what is wrong with it if it does not."""
    installed = read_installed(machine.python.executable, environ, IMPORT_SECONDS)
    if installed is None:
        raise FactoryError("the installation failed", "flash-attn is not there afterwards", "it said why above")
    if not installed.error:
        show(f"flash-attn {installed.version} is installed and imports.")
        return DONE
    show(f"flash-attn {installed.version} is installed and does not import: {installed.error}")
    for diagnosis in diagnose(replace(machine, installed=installed), facts):
        show(f"Wrong: {diagnosis.what}")
        show(f"Cure:  {diagnosis.cure}")
    return FAILED
