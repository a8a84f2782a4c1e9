"""Execute recorded calls of CK's host API, and print a JSON report with one `CallReport` for each.

    python -I -B execute_calls.py JOB.json

The job names for each kernel its code object and the text of that, and for each call its arguments and its launches.
Runs in a Python with numpy alone.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[2]))  # isolated mode leaves out the folder of the package

import numpy as np

from wheelfactory.core.strict import parse_json
from wheelfactory.emulator.ck_calls import Call
from wheelfactory.emulator.ck_execution import execute_call
from wheelfactory.emulator.code_object import read_kernels
from wheelfactory.emulator.decode import CODE_ADDRESS
from wheelfactory.emulator.dispatch import Buffer, LoadedKernel
from wheelfactory.wheel.elf.image import PT_LOAD, ElfImage


def read_call(document: Mapping[str, Any]) -> Call:
    """The inverse of `dataclasses.asdict`, through JSON."""
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in document.items()
    }
    return Call(**fields)


def load(name: str, code: str, text: str) -> LoadedKernel:
    """Load a kernel from the files of its code object and of that in words."""
    data = Path(code).read_bytes()
    segments = (each for each in ElfImage(data).segments if each.type == PT_LOAD)
    constants = [
        Buffer("constants", np.frombuffer(bytearray(part), np.uint8), CODE_ADDRESS + each.address)
        for each in segments
        if (part := data[each.offset : each.offset + each.file_size])
    ]
    return LoadedKernel(read_kernels(data)[name], Path(text).read_text(encoding="utf-8"), constants)


def main(path: str) -> None:
    """Do a job; say each call on stderr as it ends."""
    job = parse_json(Path(path).read_bytes())
    kernels, reports = {name: load(name, *files) for name, files in job["kernels"].items()}, []
    for number, call in enumerate(map(read_call, job["calls"]), 1):
        reports.append(asdict(execute_call(call, job["launches"], kernels)))
        sys.stderr.write(f"{number}/{len(job['calls'])} {call.name}\n")
    sys.stdout.write(json.dumps(reports) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
