"""The doctor as a program: its options, what it does, and what it installs; alone, or as ``wheelfactory doctor``."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NoReturn, TextIO

from wheelfactory.core.cell import Backend
from wheelfactory.core.errors import DONE, FAILED, FactoryError, InputError
from wheelfactory.core.installer import InstallCommand
from wheelfactory.doctor.detect import IMPORT_TIMEOUT_S, detect_machine
from wheelfactory.doctor.diagnose import diagnose_machine
from wheelfactory.doctor.facts import DoctorFacts
from wheelfactory.doctor.fit import find_fit
from wheelfactory.doctor.installed_flash_attn import read_flash_attn
from wheelfactory.doctor.machine import Machine
from wheelfactory.doctor.manifest_source import MANIFEST_FILE, read_manifest_bytes, resolve_site
from wheelfactory.doctor.published_wheels import parse_wheels
from wheelfactory.doctor.report import DoctorReport, Offer, as_json, externally_managed_error, make_report
from wheelfactory.doctor.report_text import report_lines

SITE = ""
"""The address of the site beside whose index this file is served; filled in where the file is made (`single_file`)."""

FACTS = ""
"""What matrix.yaml knows, as JSON; filled in beside the site."""

TORCH_PROBE = ""
"""The program that asks torch, as text; filled in likewise."""

EXIT_CODES = (
    "exit codes: 0 flash-attn works, or a wheel fits; 1 something is wrong, or none fits; "
    "2 bad arguments, or no manifest to be read"
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """All options of the doctor."""
    parser.add_argument(
        "site",
        nargs="?",
        metavar="SITE",
        help="the address of a site, a manifest's address or file, or a release directory",
    )
    parser.add_argument("--python", metavar="PATH", help="the interpreter that flash-attn is for")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="everything as one JSON object")
    form.add_argument("--install", action="store_true", help="install the wheel that fits, after asking")
    parser.add_argument("--backend", choices=[str(backend) for backend in Backend], help="wheels of this one only")
    parser.add_argument("--flash-attn", metavar="VERSION", help="wheels of this release only, such as 2.8.3")


def diagnose_and_report(
    options: argparse.Namespace,
    python: str,
    facts: DoctorFacts,
    probe: str,
    site: str,
    environ: Mapping[str, str],
    *,
    show: Callable[[str], None],
    tell: Callable[[str], None],
    root: Path = Path("/"),
) -> int:
    """Examine the interpreter `python`, say what was found, and install if asked to; gives the exit code.

    `probe` is the program that asks torch, `site` is where wheels are listed (empty for nowhere), `show` takes a line
    of the result, `tell` one for a person who waits, `root` is the machine. Raises `InputError` if the Python cannot be
    examined, or if there is no manifest to be read: then after everything else was said.
    """
    if options.install and not site:
        raise InputError("no site to install from", "--install", "name the address of a site, or a release directory")
    tell(f"examining {python}: this imports torch, which may take a minute")
    machine = detect_machine(python, environ, probe, facts.rocm_triton_packages, root)
    report, error = DoctorReport(machine, diagnose_machine(machine, facts), site or None), None
    try:
        if site:
            source = resolve_site(site)
            wheels = parse_wheels(read_manifest_bytes(source), source.manifest, source.base)
            backend = Backend(options.backend) if options.backend else None
            fit = find_fit(wheels, machine, facts, backend=backend, flash_attn=options.flash_attn)
            report = make_report(machine, report.diagnoses, source.manifest, wheels, fit, facts)
    except InputError as caught:
        error = caught
    for line in [json.dumps(as_json(report, error), indent=2)] if options.json else report_lines(report):
        show(line)
    if error:
        raise error
    return install_best(report, facts, environ, show) if options.install else report.exit_code


class _DoctorParser(argparse.ArgumentParser):
    """A parser whose errors have the form of all others."""

    def error(self, message: str) -> NoReturn:
        """Refuse the arguments. Raises `InputError`."""
        raise InputError("bad arguments", message, f"`{self.prog} --help` says what it takes")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the doctor by itself; gives its exit code. A mistake ends as one error line and a hint."""
    parser = _DoctorParser(
        prog="doctor.py", description="Find the flash-attn wheel that fits this machine.", epilog=EXIT_CODES
    )
    add_options(parser)
    try:
        options = parser.parse_args(arguments)
        own = globals().get("__file__")  # not there if the file is piped to Python
        folder = Path(own).resolve().parent if own else None  # a release or a copy of a site, if a manifest is there
        site = options.site or SITE or (str(folder) if folder and (folder / MANIFEST_FILE).is_file() else "")
        python, facts = options.python or sys.executable, DoctorFacts.parse(FACTS)
        show, tell = partial(_write_line, sys.stdout), partial(_write_line, sys.stderr)
        code = diagnose_and_report(options, python, facts, TORCH_PROBE, site, os.environ, show=show, tell=tell)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python would complain when it ends
        return 141
    except KeyboardInterrupt:
        return _fail_with(FactoryError("interrupted", "by Ctrl-C", "nothing is half done; run it again"))
    except FactoryError as error:
        return _fail_with(error)
    except OSError as error:
        which = error.filename or "while reading or writing"
        hint = "when that is mended, run the same command again"
        return _fail_with(FactoryError(error.strerror or type(error).__name__, str(which), hint))
    return code


def _write_line(stream: TextIO, line: str) -> None:
    encoding = stream.encoding or "ascii"
    stream.write(line.encode(encoding, "replace").decode(encoding) + "\n")  # a driver's name of a GPU has (R) and (TM)


def _fail_with(error: FactoryError) -> int:
    _write_line(sys.stderr, f"error: {error}")
    if error.hint:
        _write_line(sys.stderr, f"hint: {error.hint}")
    return error.exit_code


def install_best(
    report: DoctorReport, facts: DoctorFacts, environ: Mapping[str, str], show: Callable[[str], None]
) -> int:
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
    installed = read_flash_attn(report.machine.python.executable, environ, IMPORT_TIMEOUT_S)
    if installed is None:
        raise FactoryError("the installation failed", "flash-attn is not there afterwards", "it said why above")
    if not installed.error:
        show(f"flash-attn {installed.version} is installed and imports.")
        return DONE
    show(f"flash-attn {installed.version} is installed and does not import: {installed.error}")
    for diagnosis in diagnose_machine(replace(report.machine, flash_attn=installed), facts):
        show(f"Wrong: {diagnosis.what}")
        show(f"Cure:  {diagnosis.remedy}")
    return FAILED


def _command(machine: Machine, offer: Offer, environ: Mapping[str, str]) -> InstallCommand:
    """By pip, or by uv in an environment without pip."""
    if machine.python.externally_managed:
        raise FactoryError("cannot install", *externally_managed_error(machine.python))
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
