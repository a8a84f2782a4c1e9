"""Run by any Python to say what torch it has: the one program that asks torch what it is.

    python probe_toolchain.py                 one JSON object: what a build record says of the compile
    python probe_toolchain.py gpus [triton]   lines that begin with ``answer:``, each a JSON object, said as soon as it
                                              is known: the import, and the question for GPUs, may crash or hang

Standard library only and valid on Python 3.9, because it runs inside images and in the Pythons of users; it is handed
to them as a file, or as text. Where torch does not import, the second form ends as the import does.
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


def about_torch():
    """What torch is, and what it was built for."""
    import torch

    abi = getattr(getattr(torch, "_C", None), "_GLIBCXX_USE_CXX11_ABI", None)
    return {
        "torch": str(torch.__version__),
        "hip": getattr(torch.version, "hip", None),
        # read, never assumed: pytorch.org's 2.5 for ROCm has the old ABI, the torch inside the images the new one
        "cxx11_abi": None if abi is None else bool(abi),
    }


def toolchain():
    """What a build record says about the compile (`wheelfactory.wheel.build_record.Toolchain`)."""
    found = {
        "torch": None,
        "hip": None,
        "cxx11_abi": None,
        "compiler": None,
        "glibc": platform.libc_ver()[1] or None,
        "python": "%d.%d" % sys.version_info[:2],
    }
    try:
        found.update(about_torch())
    except (ImportError, OSError):
        return found
    found["compiler"] = compiler()
    return found


def say(**facts):
    """Answer; torch and its libraries print what they like between the answers."""
    print("answer:" + json.dumps(facts), flush=True)


def answer(asked):
    """Say what this Python and its torch are, which GPUs torch sees, and which Triton there is if that is asked for."""
    say(executable=sys.executable, python="%d.%d" % sys.version_info[:2])
    about = about_torch()
    import torch

    say(cuda=getattr(torch.version, "cuda", None), **about)
    seen = bool(torch.cuda.is_available())
    say(sees_gpu=seen)
    if seen:
        gpus = [torch.cuda.get_device_properties(number) for number in range(torch.cuda.device_count())]
        say(gpus=[{"name": getattr(gpu, "name", ""), "arch": arch(gpu, about["hip"])} for gpu in gpus])
    if "triton" in asked:
        say(triton=triton())


def arch(gpu, hip):
    """``gfx942`` without features, or ``sm_90`` where torch is not for ROCm."""
    if hip:
        return getattr(gpu, "gcnArchName", "").partition(":")[0]
    return "sm_%s%s" % (getattr(gpu, "major", ""), getattr(gpu, "minor", ""))


def triton():
    """The version of the Triton that imports, or None."""
    try:
        import triton
    except Exception:
        return None
    return str(triton.__version__)


if __name__ == "__main__":
    own = globals().get("__file__")  # not there where this is handed as text
    beside = own and os.path.dirname(os.path.abspath(own))
    sys.path[:] = [folder for folder in sys.path if folder and folder != beside]  # what lies there is not installed
    if sys.argv[1:]:
        answer(sys.argv[1:])
    else:
        print(json.dumps(toolchain()))
