"""A small flash-attn build as torch leaves it for ninja: generated kernels, a binding, a build.ninja.

hipcc is a script (`fake_hipcc`) that records its arguments and writes its flags and source as the object. The tests
show which sources are compiled for what, when, with which flags, and which objects are stored.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ninja import BIN_DIR

from wheelfactory.kernels.compiler import ninja
from wheelfactory.kernels.compiler.request import REQUEST_VARIABLE, SURVEYED, CompileRequest, CompileResult
from wheelfactory.kernels.compiler.store import ObjectRecord, SetKey, Store
from wheelfactory.kernels.compiler.survey import Survey

_FORWARD = (f"fmha_fwd_d{dim}_fp16_{kind}" for dim in (64, 128) for kind in ("batch", "group"))
KERNELS = (*_FORWARD, "fmha_bwd_api")
BINDING = "flash_api"

HIPCC = f"""\
#!{sys.executable} -IS
import sys

sys.path.append({str(Path(__file__).parent)!r})
import fake_hipcc

fake_hipcc.main(sys.argv)
"""

FLAGS = "-I{root}/csrc/ck/include -I{torch}/include -DTORCH_EXTENSION_NAME=flash_attn_2_cuda --offload-arch=gfx942 -O3"


@dataclass(frozen=True)
class Project:
    """A build folder, ready for ninja."""

    root: Path
    kernels: Path
    """The folder of stores."""
    torch: str = "/venv/torch"
    flags: str = ""

    @property
    def build(self) -> Path:
        """The folder of objects."""
        return self.root / "build/temp"

    @property
    def log(self) -> Path:
        """The log of hipcc: a line for each compile."""
        return self.root / "hipcc.log"

    @property
    def hipcc(self) -> Path:
        """The compiler."""
        return self.root.parent / "rocm/bin/hipcc"

    def output(self, name: str) -> Path:
        """The object of a source."""
        return self.build / f"{name}.o"

    def compiled(self) -> list[str]:
        """Return what was compiled, in order: ``NAME for gfx942``, or only the name of a binding or a whole object."""
        return [f"{name} for {target}" if target else name for name, target in self._compiles()]

    def sources(self) -> list[str]:
        """Return the names of the compiled kernels and bindings, sorted, each once."""
        return sorted({name for name, _ in self._compiles()})

    def _compiles(self) -> list[tuple[str, str]]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [
            (Path(line.partition(" -c ")[2].split()[0]).stem, target_of(line.split()))
            for line in lines
            if " -c " in line and not is_sample(line)
        ]

    def request(
        self,
        *,
        jobs: int = 2,
        shard: str = "",
        shard_ledger: str = "",
        deadline: float | None = None,
        archive_keys: tuple[Mapping[str, Any], ...] = (),
        planned_sources: tuple[str, ...] = (),
        targets: tuple[str, ...] = (),
        survey: str = "",
    ) -> CompileRequest:
        """Return a compile request for this project."""
        return CompileRequest(
            ninja=f"{BIN_DIR}/ninja",
            kernels=str(self.kernels),
            ledger=str(self.kernels / "ledger.jsonl"),
            result_file=str(self.root / "result.json"),
            jobs=jobs,
            targets=targets,
            shard=shard,
            shard_ledger=shard_ledger,
            deadline=deadline,
            archive_keys=archive_keys,
            planned_sources=planned_sources,
            survey=survey,
        )

    def start(self, request: CompileRequest, *arguments: str, **environ: str) -> subprocess.Popen[str]:
        """Start our ninja as torch does."""
        (self.root / "result.json").unlink(missing_ok=True)
        request.write(self.root / "request.json")
        settings = {"HIPCC_LOG": str(self.log), REQUEST_VARIABLE: str(self.root / "request.json"), **environ}
        return subprocess.Popen(
            [sys.executable, "-ISB", str(ninja.__file__), *(arguments or ("-v",))],
            cwd=self.build,
            env={"PATH": os.environ["PATH"], **settings},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, request: CompileRequest | None = None, *arguments: str, **environ: str) -> tuple[int, str]:
        """Run our ninja as torch does; return exit status and output."""
        with self.start(request or self.request(), *arguments, **environ) as process:
            output, _ = process.communicate()
        return process.returncode, output

    def survey(self, *targets: str) -> Survey:
        """Have our ninja list the compiles instead of running them."""
        path = self.root / "survey.json"
        code, output = self.run(self.request(survey=str(path), targets=targets))
        assert (code, self.report().state) == (ninja.NOT_LINKED, SURVEYED), output
        return Survey.read(path)

    def report(self) -> CompileResult:
        """Return the report of the last run."""
        report = CompileResult.read(self.root / "result.json")
        assert report
        return report

    def store(self) -> Store:
        """Return the store of the last run: of the host code, if it compiled that."""
        folder = self.kernels / self.report().keys[-1][:16]
        return Store(self.kernels, SetKey.from_bytes((folder / "set.json").read_bytes()))

    def finished(self) -> dict[str, ObjectRecord]:
        """Return the records in the store of the last run."""
        return self.store().read_records()


def target_of(words: Sequence[str]) -> str:
    """What a command line of hipcc compiles for: an arch, ``host``, or empty for all of them."""
    if "--cuda-host-only" in words:
        return "host"
    archs = [word.partition("=")[2] for word in words if word.startswith("--offload-arch=")]
    return archs[0] if "--cuda-device-only" in words else ""


def is_sample(line: str) -> bool:
    """Whether a command line compiles a kernel the ordinary way, to compare with."""
    return "-host/" in line.partition(" -o ")[2]


def make_project(
    folder: Path, name: str = "flash_attn-2.8.3", *, kernels: Path | None = None, **settings: str
) -> Project:
    """Create a project below `folder`; all projects there share a compiler and a folder of stores."""
    project = Project(folder / name, kernels or folder / "kernels", **settings)
    for path in (project.build, project.root / "csrc/ck/include", project.hipcc.parent, project.kernels):
        path.mkdir(parents=True, exist_ok=True)
    if not project.hipcc.exists():
        for program in (project.hipcc, project.hipcc.with_name("clang-offload-bundler")):
            program.write_text(HIPCC)
            program.chmod(0o755)
    (project.root / "csrc/ck/include/ck.hpp").write_text("// ck\n")
    for kernel in KERNELS:
        (project.root / f"build/{kernel}.hip").write_text(f'#include "ck.hpp"\n// {kernel}\n')
    (project.root / f"csrc/{BINDING}.hip").write_text("// binding\n")
    _write_build_ninja(project)
    return project


def _write_build_ninja(project: Project) -> None:
    """Write build.ninja like torch.utils.cpp_extension: absolute paths, one rule."""
    flags = FLAGS.format(root=project.root, torch=project.torch) + " " + project.flags
    lines = [
        "ninja_required_version = 1.3",
        f"nvcc = {project.hipcc}",
        f"cuda_cflags = {flags}",
        "rule cuda_compile",
        "  command = $nvcc $cuda_cflags -c $in -o $out",
    ]
    sources = [*(project.root / f"build/{name}.hip" for name in KERNELS), project.root / f"csrc/{BINDING}.hip"]
    lines += [f"build {project.output(path.stem)}: cuda_compile {path}" for path in sources]
    (project.build / "build.ninja").write_text("\n".join(lines) + "\n")
