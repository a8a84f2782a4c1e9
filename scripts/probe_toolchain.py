"""Run by the Python that builds a wheel: prints as JSON what torch and compiler it has.

Standard library only and valid on Python 3.9, because it runs inside images; it is handed to them as a file.
"""

import json
import os
import platform
import subprocess
import sys


def compiler():
    """The version line of hipcc, or None without ROCm."""
    try:
        from torch.utils.cpp_extension import ROCM_HOME
    except (ImportError, OSError):
        return None
    hipcc = os.path.join(ROCM_HOME or "", "bin", "hipcc")
    if not os.path.exists(hipcc):
        return None
    done = subprocess.run([hipcc, "--version"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    lines = [line.strip() for line in done.stdout.splitlines()]
    return "; ".join(line for line in lines if "version" in line) or None


def toolchain():
    """What a build record says about the compile (`wheelfactory.wheel.record.Toolchain`)."""
    found = {
        "torch": None,
        "hip": None,
        "cxx11_abi": None,
        "compiler": None,
        "glibc": platform.libc_ver()[1] or None,
        "python": "%d.%d" % sys.version_info[:2],
    }
    try:
        import torch
    except (ImportError, OSError):
        return found
    found["torch"] = torch.__version__
    found["hip"] = torch.version.hip
    # read, never assumed: pytorch.org's 2.5 for ROCm has the old ABI, the torch inside the images the new one
    found["cxx11_abi"] = bool(torch._C._GLIBCXX_USE_CXX11_ABI)
    found["compiler"] = compiler()
    return found


if __name__ == "__main__":
    print(json.dumps(toolchain()))
