"""The doctor as a program: its options, and what it does; alone as ``doctor.py``, or as ``wheelfactory doctor``."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn, TextIO

from wheelfactory.core.cell import Backend
from wheelfactory.core.errors import FactoryError, InputError
from wheelfactory.doctor.describe import report_lines
from wheelfactory.doctor.detect import detect
from wheelfactory.doctor.diagnose import diagnose
from wheelfactory.doctor.facts import Facts
from wheelfactory.doctor.fit import find_fit
from wheelfactory.doctor.install import install_best
from wheelfactory.doctor.report import Report, as_json, make_report
from wheelfactory.doctor.source import MANIFEST_FILE, find_source, read_source
from wheelfactory.doctor.wheels import read_wheels

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


def perform(
    options: argparse.Namespace,
    python: str,
    facts: Facts,
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
    machine = detect(python, environ, probe, facts.rocm_tritons, root)
    report, error = Report(machine, diagnose(machine, facts), site or None), None
    try:
        if site:
            source = find_source(site)
            wheels = read_wheels(read_source(source), source.manifest, source.base)
            backend = Backend(options.backend) if options.backend else None
            fit = find_fit(wheels, machine, facts, backend=backend, flash_attn=options.flash_attn)
            report = make_report(machine, report.diagnoses, source.manifest, wheels, fit)
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
        python, facts = options.python or sys.executable, Facts.parse(FACTS)
        code = perform(options, python, facts, TORCH_PROBE, site, os.environ, show=_show_line, tell=_tell_line)
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


def _show_line(line: str) -> None:
    _write_line(line, sys.stdout)


def _tell_line(line: str) -> None:
    _write_line(line, sys.stderr)


def _write_line(line: str, stream: TextIO) -> None:
    encoding = stream.encoding or "ascii"
    stream.write(line.encode(encoding, "replace").decode(encoding) + "\n")  # a driver's name of a GPU has (R) and (TM)


def _fail_with(error: FactoryError) -> int:
    _tell_line(f"error: {error}")
    if error.hint:
        _tell_line(f"hint: {error.hint}")
    return error.exit_code
