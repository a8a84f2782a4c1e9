"""A Python with a simulated GPU: its torch names the GPU, and its programs give the answers of the test.

The query for torch really runs, against a stub of torch that has only names. Measuring needs a GPU, so the test gives
the results. Each call of a program is recorded with its sizes and environment.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wheelfactory.core.files import TOOLCHAIN_PROBE

_TORCH = """
from types import SimpleNamespace as Names
__version__ = {version!r}
version = Names(hip={hip!r}, cuda={cuda!r})
_gpu = Names(**{properties!r})
cuda = Names(is_available=lambda: bool(version.hip or version.cuda), get_device_properties=lambda number: _gpu)
cuda.device_count = lambda: 1
"""

_PYTHON = """\
#!{python}
import json, os, runpy, signal, sys
arguments = [text for text in sys.argv[1:] if text not in ("-I", "-B")]
if arguments[0] == {probe!r}:
    sys.path.insert(0, {folder!r})
    sys.executable = os.path.abspath(sys.argv[0])  # who it is, it is asked as well
    sys.argv = arguments
    runpy.run_path(arguments[0], run_name="__main__")
    sys.exit()
program, name, device, _, config = arguments
backend = os.environ.get("FLASH_ATTENTION_TRITON_AMD_ENABLE", "")
environ = {{key: text for key, text in os.environ.items() if key.startswith(("FLASH_ATTENTION_", "AITER_"))}}
call = {{"program": os.path.basename(program), "name": name, "device": device, "environ": environ}}
with open({folder!r} + "/calls", "a") as file:
    file.write(json.dumps({{**call, "config": json.loads(config)}}) + "\\n")
with open({folder!r} + "/answers") as file:
    answer = json.load(file).get(name + backend, {{"status": "not run", "reason": "not installed"}})
print("a library says something\\n{{}}\\n" + json.dumps(answer) + "\\n[1, 2]")
if answer.get("killed"):
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""

MI300X = {"version": "2.9.1+rocm6.4", "hip": "6.4", "cuda": None}
CPU = {"version": "2.13.0+cpu", "hip": None, "cuda": None}
H200 = {"version": "2.11.0+cu130", "hip": None, "cuda": "13.0"}


@dataclass(frozen=True)
class GpuPython:
    """That Python."""

    folder: Path

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "python3"

    @property
    def calls(self) -> list[dict[str, Any]]:
        """How the programs were called."""
        path = self.folder / "calls"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def make_gpu_python(folder: Path, answers: dict[str, Any], torch: dict[str, Any] | None = None) -> GpuPython:
    """One whose programs answer so, by implementation; that of flash-attn is followed by what selects its backend."""
    named = MI300X if torch is None else torch
    properties: dict[str, Any]
    if named["hip"]:
        properties = {"name": "AMD Instinct MI300X", "gcnArchName": "gfx942:sramecc+:xnack-"}
    else:
        properties = {"name": "NVIDIA H200", "major": 9, "minor": 0}
    folder.mkdir()
    (folder / "torch.py").write_text(_TORCH.format(**named, properties=properties))
    (folder / "answers").write_text(json.dumps(answers))
    made = GpuPython(folder)
    made.python.write_text(_PYTHON.format(python=sys.executable, folder=str(folder), probe=str(TOOLCHAIN_PROBE)))
    made.python.chmod(0o755)
    return made


def training(symbol: str | None, step_ms: float, peak_mib: float, **other: Any) -> dict[str, Any]:
    """What the program for trainings says."""
    answer = {"status": "measured", "version": "2.8.3", "origin": "installed", "symbol": symbol, "dropped": None}
    times = [step_ms, step_ms * 2, step_ms / 2]
    return {**answer, "step_times_ms": times, "peak_mib": peak_mib, "loss_first": 7.1, "loss_last": 5.0, **other}


def attention(*rows: dict[str, Any], **other: Any) -> dict[str, Any]:
    """What the program for attention says."""
    answer = {"version": "2.8.3", "origin": "installed", "status": "", "reason": "", "dropped": None}
    return {**answer, "rows": rows, **other}


def length(seqlen: int, ms: float, extra_mib: float) -> dict[str, Any]:
    """What it says of a length."""
    measured = {"times_ms": [ms, ms * 1.02, ms * 0.98], "extra_mib": extra_mib, "difference": 0.001, "symbol": None}
    pairs = seqlen * seqlen  # of two sequences, causal
    return {"seqlen": seqlen, "status": "measured", "pairs": pairs, **measured}
