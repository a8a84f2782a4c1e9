"""Call CK's host API without a GPU, and record which kernels it launches with which arguments.

    python -ISB record_calls.py JOB.json

The program that calls is linked from a kernel set's host code and `hip_runtime.cpp`. Pointers are numbers to host code,
so the memory that they name can be anywhere, and launches can be executed later. Runs on the build host.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

CPP_FOLDER = Path(__file__).resolve().parent
"""The folder of our C++ sources."""

APIS = {"fmha_fwd": "fmha_fwd", "fmha_fwd_splitkv": "fmha_fwd", "fmha_fwd_appendkv": "fmha_fwd", "fmha_bwd": "fmha_bwd"}
"""The functions of CK's host API, and the header of each. Source: mha_*.cpp in csrc/flash_attn_ck, which call these."""

LAUNCHER = "struct fmha_bwd_launcher"
"""Newer headers declare it: the bindings then call it for the backward, with memory that no struct names."""

NOT_MODELLED = "calls of fmha_bwd_launcher are not modelled"


@dataclass(frozen=True)
class Job:
    """What to link, what to call, and what to disassemble. Paths are those on the build host."""

    hipcc: str
    flags: tuple[str, ...]
    """Those of the set's host code; header folders are relative to `root`."""
    root: str
    """The folder with the unpacked sources of the release."""
    objects: tuple[str, ...]
    """The host code of all sources."""
    arch: str
    kernels: Mapping[str, tuple[str, ...]]
    """By name of a kernel: the path of its code object, then the sizes of its arguments in bytes."""
    calls: Mapping[str, str]
    """For each call, by its name, the input of the program: a function of `APIS`, then a line for each field."""
    output: str
    """A folder, which gets ``launches.json`` and the text of each launched code object, by its file name."""


@dataclass(frozen=True)
class Recording:
    """What a call launched, as lines of `hip_runtime.cpp`; `error` is why it failed, else empty."""

    launches: tuple[str, ...]
    error: str


def read_header(job: Job, name: str) -> str:
    """Return the text of a header of CK."""
    folders = [Path(job.root, flag[2:]) for flag in job.flags if flag.startswith("-I")]
    return next(path for folder in folders if (path := folder / f"{name}.hpp").is_file()).read_text(encoding="utf-8")


def read_fields(calls: Iterable[str], declared: str) -> list[str]:
    """Return the fields that calls set. Ends the program if one is no member of a struct in the text of the headers."""
    fields = sorted({line.split()[0] for text in calls for line in text.splitlines()[1:]})
    for name in fields:
        if not re.search(rf"^[^/]*\b{name}\b[^;()]*;", declared, re.MULTILINE):
            sys.exit(f"error: CK's headers lack the field {name}: correct it in emulator/ck_calls.py")
    return fields


def choose_apis(calls: Iterable[str], declared: Mapping[str, str]) -> list[str]:
    """Choose the functions of calls, without one that a launcher of its header stands for in the bindings."""
    called = {text.split()[0] for text in calls}
    return [api for api, header in APIS.items() if api in called and LAUNCHER not in declared[header]]


def link(job: Job, folder: Path) -> tuple[Path, list[str]]:
    """Compile and link the calling program into `folder`; return its path, and the functions that it can call."""
    declared = {header: read_header(job, header) for header in APIS.values()}
    apis = choose_apis(job.calls.values(), declared)
    fields = read_fields((text for text in job.calls.values() if text.split()[0] in apis), "".join(declared.values()))
    (folder / "fields.inc").write_text("".join(f"FIELD({name})\n" for name in fields), encoding="utf-8")
    (folder / "apis.inc").write_text("".join(f"CALL({api})\n" for api in apis), encoding="utf-8")
    sources = [CPP_FOLDER / "hip_runtime.cpp", CPP_FOLDER / "call_api.cpp"]
    for header in {APIS[api] for api in apis}:
        lines = [f'#include "{header}.hpp"', '#include "call_api.hpp"']
        lines += [f"CALL({api})" for api in apis if APIS[api] == header]
        sources.append(folder / f"call_{header}.cpp")
        sources[-1].write_text("\n".join((*lines, "")), encoding="utf-8")
    listed, program = folder / "objects.txt", folder / "caller"
    listed.write_text("\n".join(job.objects), encoding="utf-8")
    options = [*job.flags, f"--offload-arch={job.arch}", "--cuda-host-only", "-O0", f"-I{CPP_FOLDER}", f"-I{folder}"]
    # hip_runtime.cpp takes the place of HIP's own library. It has only what a launch needs, and a filtered set lacks
    # kernels that its API names: a call of what is missing ends the program
    options += ["-no-hip-rt", "-no-pie", "-Wl,--unresolved-symbols=ignore-all", "-o", str(program)]
    command = [job.hipcc, *options, "-x", "hip", *map(str, sources), "-x", "none", f"@{listed}"]
    subprocess.run(command, cwd=job.root, check=True)
    return program, apis


def record(job: Job, program: Path, apis: Collection[str], folder: Path) -> Iterator[tuple[str, Recording]]:
    """Run each call of one of these functions in a process of its own, and yield its name and what it launched."""
    table = folder / "arguments.txt"
    rows = (" ".join((name, *sizes)) for name, (_, *sizes) in job.kernels.items())
    table.write_text("\n".join(rows), encoding="utf-8")
    environ = {"KERNEL_ARGUMENTS": str(table), "KERNEL_ARCH": job.arch}
    for name, text in job.calls.items():
        if text.split()[0] not in apis:
            yield name, Recording((), NOT_MODELLED)
            continue
        done = subprocess.run([program], input=text, env=environ, capture_output=True, text=True)
        error = "" if done.returncode == 0 else done.stderr.strip() or f"exit status {done.returncode}"
        yield name, Recording(tuple(done.stdout.splitlines()), error)


def main(path: str) -> None:
    """Do a job."""
    job = Job(**json.loads(Path(path).read_text(encoding="utf-8")))
    folder = Path(job.output)
    recorded = dict(record(job, *link(job, folder), folder))
    lines = [line for recording in recorded.values() for line in recording.launches]
    objdump = subprocess.check_output([job.hipcc, "-print-prog-name=llvm-objdump"], text=True).strip()
    for code in {job.kernels[line.split()[1]][0] for line in lines}:
        with (folder / f"{Path(code).name}.s").open("w") as file:
            subprocess.run([objdump, "-d", "--symbolize-operands", code], stdout=file, check=True)
    documents = {name: asdict(recording) for name, recording in recorded.items()}
    (folder / "launches.json").write_text(json.dumps(documents), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
