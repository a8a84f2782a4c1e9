"""The doctor's command line: options, examination and installation, as ``doctor.py`` or ``wheelfactory doctor``."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NoReturn

from wheelfactory.core.cell import Backend
from wheelfactory.core.errors import DONE, FAILED, FactoryError, InputError, as_factory_error
from wheelfactory.core.published import MANIFEST_NAME, InstallCommand
from wheelfactory.core.query import Interpreter
from wheelfactory.core.wrap import as_printable, write_lines, write_message
from wheelfactory.doctor.detect import IMPORT_TIMEOUT_S, detect_machine
from wheelfactory.doctor.diagnose import diagnose_machine
from wheelfactory.doctor.exports import read_exports
from wheelfactory.doctor.facts import DoctorFacts
from wheelfactory.doctor.fit import find_fit
from wheelfactory.doctor.installed_flash_attn import list_compiled_archs, read_flash_attn
from wheelfactory.doctor.machine import Machine
from wheelfactory.doctor.published_wheels import PublishedWheel, parse_wheels, read_manifest_bytes, resolve_site
from wheelfactory.doctor.report import DoctorReport, Offer, make_report
from wheelfactory.doctor.report_output import as_json, report_lines
from wheelfactory.doctor.steps import VENV
from wheelfactory.doctor.verdict import VerdictKind, Wanted

SITE = ""
"""Default site; `doctor_file` fills in the address that ``doctor.py`` is served from."""

FACTS = ""
"""The JSON of `site.doctor_file.doctor_facts`; filled in by `doctor_file`."""

PROBE = ""
"""The source of the program that queries Python and torch; filled in by `doctor_file`."""

EXIT_CODES = (
    "exit codes: 0 flash-attn works, or a wheel matches; 1 a problem was found, or no wheel matches; "
    "2 bad arguments, or the manifest cannot be read"
)


def add_options(parser: argparse.ArgumentParser, program: Sequence[str]) -> None:
    """Add the doctor's options to a parser; `program` is the command that runs it, for its advice."""
    parser.set_defaults(program=tuple(program))
    what = "site URL, manifest (URL or file), or release directory"
    parser.add_argument("site", nargs="?", metavar="SITE", help=what)
    parser.add_argument("--python", metavar="PATH", help="examine this interpreter; --install installs into it")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON object")
    form.add_argument("--install", action="store_true", help="install the matching wheel after asking")
    parser.add_argument("--backend", choices=list(map(str, Backend)), help="consider only wheels of this backend")
    parser.add_argument("--verbose", action="store_true", help="also print the machine, the wheels and their checks")
    parser.add_argument("--flash-attn", metavar="VERSION", help="consider only wheels of this release, such as 2.8.3")


def diagnose_and_report(
    options: argparse.Namespace,
    python: str,
    facts: DoctorFacts,
    probe: str,
    site: str,
    *,
    show: Callable[[str], None],
    tell: Callable[[str], None],
    root: Path = Path("/"),
) -> int:
    """Examine the interpreter `python`, print the report, and install a wheel if requested; return the exit code.

    `probe`: source of the program that queries torch. `site`: where wheels are listed, empty for none. `show` prints a
    line of the result, `tell` a line of progress. `root`: file system of the machine. Raises InputError if the Python
    cannot be examined or, after printing the rest of the report, if the manifest cannot be read.
    """
    if options.install and not site:
        raise InputError("no site to install from", "--install", "pass the address of a site, or a release directory")
    tell(f"examining {python}: importing torch may take a minute")
    interpreter = Interpreter([python], options.environ, IMPORT_TIMEOUT_S)
    machine = detect_machine(interpreter, probe, facts.rocm_triton_packages, root)
    error = None
    try:
        report = _report_on_site(options, machine, facts, site) if site else None
    except InputError as caught:
        report, error = None, caught
    report = report or replace(make_report(machine, diagnose_machine(machine, facts), facts), site=site or None)
    text = report_lines(report, verbose=options.verbose)
    for line in json.dumps(as_json(report, error), indent=2).split("\n") if options.json else text:
        show(line)
    if error:
        raise error
    return install_best(report, facts, probe, options.environ, show) if options.install else report.exit_code


def _report_on_site(options: argparse.Namespace, machine: Machine, facts: DoctorFacts, site: str) -> DoctorReport:
    """Return the report for a machine and the wheels of a site. Raises InputError if its manifest cannot be read."""
    source = resolve_site(site)
    wheels = parse_wheels(read_manifest_bytes(source), source.manifest, source.base)
    wanted = Wanted(Backend(options.backend) if options.backend else None, options.flash_attn)
    machine = with_wheel_facts(machine, wheels)
    fit = find_fit(wheels, machine, facts, backend=wanted.backend, flash_attn=wanted.flash_attn)
    diagnoses, doctor = diagnose_machine(machine, facts), _own_command(options, machine)
    return make_report(machine, diagnoses, facts, source, fit, wanted, doctor)


def with_wheel_facts(machine: Machine, wheels: Sequence[PublishedWheel]) -> Machine:
    """Return a machine with what a manifest knows: the archs of an installed wheel, the symbols that torch defines."""
    installed, torch = machine.flash_attn, machine.torch
    same = next((wheel for wheel in wheels if installed and wheel.version == installed.version), None)
    if installed and same and installed.extension and not list_compiled_archs(installed):
        machine = replace(machine, flash_attn=replace(installed, extension_archs=same.archs))
    wanted = {symbol for wheel in wheels for symbol in wheel.torch_symbols}
    if torch and torch.libraries and wanted:
        machine = replace(machine, torch=replace(torch, exports=read_exports(torch.libraries, wanted)))
    return machine


def _own_command(options: argparse.Namespace, machine: Machine) -> tuple[str, ...]:
    """Return the command that runs the doctor again; with ``--python`` unless the steps lead to another Python."""
    site = (options.site,) if options.site else ()
    keeps_python = options.python and not machine.python.externally_managed
    return (*options.program, *site, *(("--python", options.python) if keeps_python else ()))


class _DoctorParser(argparse.ArgumentParser):
    """Reports errors as `FactoryError` does."""

    def error(self, message: str) -> NoReturn:
        """Raise `InputError`."""
        raise InputError("bad arguments", message, f"run `{self.prog} --help` to list the options")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``doctor.py``; return its exit code. Errors end as one ``error:`` line and a hint."""
    description = "Find the flash-attn wheel that matches this machine."
    parser = _DoctorParser(prog="doctor.py", description=description, epilog=EXIT_CODES)
    own = globals().get("__file__")  # unset if the file is piped to Python
    add_options(parser, ("python3", sys.argv[0] if own else "doctor.py"))
    try:
        options = parser.parse_args(arguments, argparse.Namespace(environ=os.environ))
        folder = Path(own).resolve().parent if own else None  # with a manifest: a release, or a copy of a site
        site = options.site or SITE or (str(folder) if folder and (folder / MANIFEST_NAME).is_file() else "")
        python, facts = options.python or sys.executable, DoctorFacts.parse(FACTS)
        show, tell = (lambda line: write_lines(sys.stdout, [line])), partial(write_message, sys.stderr)
        code = diagnose_and_report(options, python, facts, PROBE, site, show=show, tell=tell)
        sys.stdout.flush()
    except BrokenPipeError:
        # otherwise Python prints an error when it flushes at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141  # what a shell reports for SIGPIPE: 128 + 13
    except KeyboardInterrupt:
        return _fail_with(FactoryError("interrupted", "by Ctrl-C", "run the same command again"))
    except FactoryError as error:
        return _fail_with(error)
    except OSError as error:
        return _fail_with(as_factory_error(error))
    return code


def _fail_with(error: FactoryError) -> int:
    write_message(sys.stderr, f"error: {error}")
    if error.hint:
        write_message(sys.stderr, f"hint: {error.hint}")
    return error.exit_code


def install_best(
    report: DoctorReport, facts: DoctorFacts, probe: str, environ: Mapping[str, str], show: Callable[[str], None]
) -> int:
    """Ask on stdin, then install the best wheel; return `DONE` if flash-attn imports afterwards, otherwise `FAILED`.

    Raises FactoryError if stdin gives no answer, neither pip nor uv is available, or the installation fails.
    """
    if report.verdict.kind is VerdictKind.KEEP:
        return DONE
    if report.verdict.kind is not VerdictKind.INSTALL or not report.offers:
        show("")
        show("Nothing was installed: follow the steps first." if report.steps else "Nothing was installed.")
        return FAILED
    command = _command(report.machine, report.offers[0])
    show("")
    show(shlex.join(command))
    if not _confirm(report):
        show("Nothing was installed.")
        return FAILED
    if code := subprocess.call(command, env=dict(environ)):
        raise FactoryError("the installation failed", f"{command[0]} exited with code {code}", "read its output above")
    installed = read_flash_attn(Interpreter([report.machine.python.executable], environ, IMPORT_TIMEOUT_S), probe)
    if installed is None:
        raise FactoryError("the installation failed", "flash-attn is still missing", "read the output above")
    if not installed.error:
        show(f"flash-attn {installed.version} is installed and imports.")
        return DONE
    show(f"flash-attn {installed.version} is installed but does not import: {installed.error}")
    for diagnosis in diagnose_machine(replace(report.machine, flash_attn=installed), facts):
        show(f"Problem: {diagnosis.what}")
        show(f"Fix:     {diagnosis.remedy}")
    return FAILED


def _command(machine: Machine, offer: Offer) -> InstallCommand:
    """Return the offer's pip command, or its uv command if the Python has no pip. Raises FactoryError without both."""
    python = machine.python
    if python.externally_managed:
        which = f"the Linux distribution manages {python.executable}, so pip refuses to install into it (PEP 668)"
        hint = f"follow the steps above, then run the doctor with --python {VENV}/bin/python"
        raise FactoryError("cannot install", which, hint)
    if python.pip is not None:
        return offer.pip
    if not python.has_uv:
        hint = f"run `{python.executable} -m ensurepip`"
        raise FactoryError("no installer", f"neither pip in {python.executable} nor uv on PATH", hint)
    return offer.uv


def _confirm(report: DoctorReport) -> bool:
    """Return whether the answer is yes. Raises FactoryError if stdin is closed."""
    sys.stdout.flush()
    installed = report.machine.flash_attn
    works = installed is not None and not installed.error and not report.diagnoses
    replaced = f"Replace flash-attn {installed.version}, which works" if works and installed else "Install it"
    sys.stderr.write(f"{as_printable(replaced)}? [y/N] ")
    sys.stderr.flush()
    answer = sys.stdin.readline() if sys.stdin else ""
    if not answer:
        sys.stderr.write("\n")
        hint = "run the command above, or pipe the answer: echo y |"
        raise FactoryError("nothing was installed", "no answer on stdin", hint)
    return answer.strip().lower() in ("y", "yes")
