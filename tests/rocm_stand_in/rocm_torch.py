"""Makes a CPU build of torch say that it is built for ROCm, so that the real setup.py and the real
torch.utils.cpp_extension take their ROCm path. A .pth file of the test's environment imports it at start-up.

Stands in for the torch of a ROCm index, which is gigabytes and not to be had on every machine.
"""

from __future__ import annotations

import ctypes
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import types
from collections.abc import Sequence

HIP = "7.2.53211-0000000"


class _Version(importlib.abc.Loader):
    def exec_module(self, module: types.ModuleType) -> None:
        version = os.environ["STAND_IN_TORCH"]
        vars(module).update(
            __version__=version, debug=False, cuda=None, git_version="stand-in", hip=HIP, rocm=HIP, xpu=None
        )


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname == "torch.version":
            return importlib.util.spec_from_loader(fullname, _Version())
        if fullname == "torch.utils.cpp_extension":
            import torch

            torch.cuda._is_compiled = lambda: True  # asked before ROCm is looked for
        if fullname == "flash_attn":  # ROCm's torch has loaded HIP by the time an extension is imported
            ctypes.CDLL(f"{os.environ.get('ROCM_PATH', '/opt/rocm')}/lib/libamdhip64.so.7", ctypes.RTLD_GLOBAL)
        return None


if "STAND_IN_TORCH" in os.environ:
    sys.meta_path.insert(0, _Finder())
