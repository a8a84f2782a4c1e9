"""A small flash-attn build as torch leaves it for ninja: generated kernels, a binding, a build.ninja.

hipcc is a shell script that records its arguments and writes its flags and source as the object. The tests show which
sources are compiled, when, with which flags, and which objects are stored.
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

from wheelfactory.kernels.compiler import launcher, ninja
from wheelfactory.kernels.compiler.request import REQUEST_VARIABLE, CompileRequest, CompileResult
from wheelfactory.kernels.compiler.store import ObjectRecord, SetKey, Store

_FORWARD = (f"fmha_fwd_d{dim}_fp16_{kind}" for dim in (64, 128) for kind in ("batch", "group"))
KERNELS = (*_FORWARD, "fmha_bwd_api")
BINDING = "flash_api"

HIPCC = """\
#!/bin/sh
[ "$1" = --version ] && { echo "clang version 19.0.0"; exit 0; }
case " $* " in *" -### "* | *" -dM "*) exit 0 ;; esac
echo "$* append=$HIPCC_COMPILE_FLAGS_APPEND" >> "$HIPCC_LOG"
while [ $# -gt 0 ]; do
  case $1 in
    -c) source=$2; shift ;;
    -o) output=$2; shift ;;
    *) flags="$flags $1" ;;
  esac
  shift
done
eval "${HIPCC_DOES:-:}"
{ echo "$flags"; cat "$source"; } > "$output"
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
        """Return the names of the compiled sources, in order."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [Path(line.partition(" -c ")[2].split()[0]).stem for line in lines]

    def request(
        self,
        *,
        jobs: int = 2,
        shard: str = "",
        shard_ledger: str = "",
        deadline: float | None = None,
        archive_keys: tuple[Mapping[str, Any], ...] = (),
        planned_sources: tuple[str, ...] = (),
        ccache: str = "",
    ) -> CompileRequest:
        """Return a compile request for this project."""
        return CompileRequest(
            ninja=f"{BIN_DIR}/ninja",
            kernels=str(self.kernels),
            ledger=str(self.kernels / "ledger.jsonl"),
            result_file=str(self.root / "result.json"),
            jobs=jobs,
            shard=shard,
            shard_ledger=shard_ledger,
            deadline=deadline,
            archive_keys=archive_keys,
            planned_sources=planned_sources,
            ccache=ccache,
            ccache_dir=str(self.kernels) if ccache else "",
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
            output, _ = process.communicate(timeout=60)
        return process.returncode, output

    def report(self) -> CompileResult:
        """Return the report of the last run."""
        report = CompileResult.read(self.root / "result.json")
        assert report
        return report

    def store(self) -> Store:
        """Return the store of the last run."""
        folder = self.kernels / self.report().key[:16]
        return Store(self.kernels, SetKey.from_bytes((folder / "set.json").read_bytes()))

    def finished(self) -> dict[str, ObjectRecord]:
        """Return the records in the store of the last run."""
        return self.store().read_records()


def make_project(
    folder: Path, name: str = "flash_attn-2.8.3", *, kernels: Path | None = None, **settings: str
) -> Project:
    """Create a project below `folder`; all projects there share a compiler and a folder of stores."""
    project = Project(folder / name, kernels or folder / "kernels", **settings)
    for path in (project.build, project.root / "csrc/ck/include", project.hipcc.parent, project.kernels):
        path.mkdir(parents=True, exist_ok=True)
    if not project.hipcc.exists():
        project.hipcc.write_text(HIPCC)
        project.hipcc.chmod(0o755)
    (project.root / "csrc/ck/include/ck.hpp").write_text("// ck\n")
    for kernel in KERNELS:
        (project.root / f"build/{kernel}.hip").write_text(f'#include "ck.hpp"\n// {kernel}\n')
    (project.root / f"csrc/{BINDING}.hip").write_text("// binding\n")
    _write_build_ninja(project)
    return project


def _write_build_ninja(project: Project) -> None:
    """Write build.ninja like torch.utils.cpp_extension: absolute paths, one rule."""
    flags = FLAGS.format(root=project.root, torch=project.torch) + " " + project.flags
    program = f"{sys.executable} -ISB {Path(str(launcher.__file__)).resolve()} {project.hipcc}"
    lines = [
        "ninja_required_version = 1.3",
        f"nvcc = {program}",
        f"cuda_cflags = {flags}",
        "rule cuda_compile",
        "  command = $nvcc $cuda_cflags -c $in -o $out",
    ]
    sources = [*(project.root / f"build/{name}.hip" for name in KERNELS), project.root / f"csrc/{BINDING}.hip"]
    lines += [f"build {project.output(path.stem)}: cuda_compile {path}" for path in sources]
    (project.build / "build.ninja").write_text("\n".join(lines) + "\n")


def keys_of(projects: Sequence[Project]) -> list[str]:
    """Run each project and return the keys of their kernel sets."""
    for project in projects:
        code, output = project.run()
        assert code == 0, output
    return [project.report().key for project in projects]
