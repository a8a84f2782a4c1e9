"""Describe the Python that runs this file, and its torch: the only program that asks torch about itself.

    python probe_toolchain.py                 one JSON object, for the build record
    python probe_toolchain.py python [NAME..] a line ``answer:{JSON object}`` about Python and its packages, torch and
                                              those of these names; nothing is imported
    python probe_toolchain.py import [extension]
                                              a line ``answer:{JSON object}`` with the error of importing flash-attn
    python probe_toolchain.py gpus [triton]   lines ``answer:{JSON object}``, each printed at once, because importing
                                              torch and looking for GPUs may crash or hang

Standard library only and valid on Python 3.9, because it runs in images and in users' Pythons, from a file or as text
(``python -c``). If torch does not import, the last form fails like the import.
"""

import json
import os
import platform
import subprocess
import sys
import sysconfig


def compiler():
    """hipcc's version line, or None without ROCm."""
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


def describe_torch():
    """Return torch's version, its HIP version and its C++ ABI."""
    import torch

    abi = getattr(getattr(torch, "_C", None), "_GLIBCXX_USE_CXX11_ABI", None)
    return {
        "torch": str(torch.__version__),
        "hip": getattr(torch.version, "hip", None),
        # not derived from the version: pytorch.org's 2.5 has the old ABI, the same torch in AMD's images the new one
        "cxx11_abi": None if abi is None else bool(abi),
    }


def toolchain():
    """Return the toolchain for a build record (`wheelfactory.wheel.read.Toolchain`)."""
    found = {
        "torch": None,
        "hip": None,
        "cxx11_abi": None,
        "compiler": None,
        "glibc": platform.libc_ver()[1] or None,
        "python": "%d.%d" % sys.version_info[:2],
    }
    try:
        found.update(describe_torch())
    except (ImportError, OSError):
        return found
    found["compiler"] = compiler()
    return found


def print_answer(**facts):
    """Print an answer line, marked because torch and its libraries may print other lines."""
    print("answer:" + json.dumps(facts), flush=True)


def describe_python(names):
    """Return what the doctor asks about this Python, its torch and the packages of these names."""
    import importlib.util

    kind = {"CPython": "cp", "PyPy": "pp"}.get(platform.python_implementation(), "py")
    free = "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
    marker = os.path.join(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED")
    try:
        torch_found = importlib.util.find_spec("torch") is not None
    except Exception:
        torch_found = False
    unmet = []
    for need in requirements("torch"):
        have = version(need.name)
        if have is None or not need.specifier.contains(have, prereleases=True):
            unmet.append([need.name, str(need.specifier), have])
    pins = {name: need for name in names for need in requirements(name) if need.name == "torch" and need.specifier}
    versions = {name: version(name) for name in names}
    return {
        "executable": sys.executable,
        "version": platform.python_version(),
        "tag": "%s%d%d%s" % (kind, sys.version_info[0], sys.version_info[1], free),
        "system": platform.system(),
        "machine": platform.machine(),
        "glibc": dict([platform.libc_ver()]).get("glibc"),
        "pip": version("pip"),
        "unmet": unmet,
        "pins": {name: str(need.specifier) for name, need in pins.items()},
        "externally_managed": sys.prefix == sys.base_prefix and os.path.exists(marker),
        "torch": version("torch"),
        "torch_found": torch_found,
        "packages": {name: found for name, found in versions.items() if found is not None},
    }


def version(name):
    """The version of a distribution; None if it is missing, empty if it is damaged."""
    import importlib.metadata

    try:
        return importlib.metadata.version(name) or ""
    except Exception:
        return None


def requirements(name):
    """The requirements of a distribution that count for this Python; none where nothing can parse them."""
    import importlib.metadata

    try:
        try:
            from packaging.requirements import Requirement
        except ImportError:
            from pip._vendor.packaging.requirements import Requirement
        every = [Requirement(line) for line in importlib.metadata.requires(name) or ()]
    except Exception:
        return []
    return [one for one in every if one.marker is None or one.marker.evaluate({"extra": ""})]


def import_error(needs_extension):
    """Return the error of importing flash-attn in one line; empty if it imports.

    With `needs_extension`, an import that uses other kernels than those of its extension is an error.
    """
    import traceback
    import warnings

    if needs_extension:
        # after 2.8.3, flash-attn warns of an extension that does not load, and uses aiter instead if there is one
        warnings.filterwarnings("error", message="flash_attn_2_cuda ")
    try:
        from flash_attn.flash_attn_interface import flash_attn_func  # noqa: F401  # only to see it fail
    except BaseException as caught:
        error = caught.__context__ if isinstance(caught, UserWarning) and caught.__context__ else caught
        return " ".join("".join(traceback.format_exception_only(type(error), error)).split())
    return ""


def answer(requested):
    """Print this Python, its torch, the GPUs that torch sees, and Triton's version if requested."""
    print_answer(executable=sys.executable, python="%d.%d" % sys.version_info[:2])
    torch_facts = describe_torch()
    import torch

    folder = os.path.dirname(getattr(torch, "__file__", None) or "")
    rocm, cuda = getattr(torch.version, "rocm", None), getattr(torch.version, "cuda", None)
    print_answer(cuda=cuda, rocm=rocm, libraries=os.path.join(folder, "lib"), **torch_facts)
    seen = bool(torch.cuda.is_available())
    print_answer(sees_gpu=seen)
    print_answer(arch_list=arch_list())
    if seen:
        gpus = [torch.cuda.get_device_properties(number) for number in range(torch.cuda.device_count())]
        print_answer(gpus=[{"name": getattr(gpu, "name", ""), "arch": arch(gpu, torch_facts["hip"])} for gpu in gpus])
    if "triton" in requested:
        print_answer(triton=triton())


def arch_list():
    """The archs that torch has code for; empty if it does not say."""
    import torch

    flags = getattr(getattr(torch, "_C", None), "_cuda_getArchFlags", None)  # without a GPU, get_arch_list() is empty
    ask = getattr(torch.cuda, "get_arch_list", list)
    try:
        return [name.partition(":")[0] for name in ask() or (flags() if flags else "").split()]
    except Exception:
        return []


def arch(gpu, hip):
    """``gfx942`` without features, or ``sm_90`` if torch is not built for ROCm."""
    if hip:
        return getattr(gpu, "gcnArchName", "").partition(":")[0]
    return "sm_%s%s" % (getattr(gpu, "major", ""), getattr(gpu, "minor", ""))


def triton():
    """Triton's version, or None if it does not import."""
    try:
        import triton
    except Exception:
        return None
    return str(triton.__version__)


if __name__ == "__main__":
    own = globals().get("__file__")  # not defined when this runs as text
    beside = own and os.path.dirname(os.path.abspath(own))
    sys.path[:] = [
        folder for folder in sys.path if folder and folder != beside
    ]  # files beside this script are not installed packages
    if sys.argv[1:2] == ["python"]:
        print_answer(**describe_python(sys.argv[2:]))
    elif sys.argv[1:2] == ["import"]:
        failure = import_error("extension" in sys.argv)
        print()  # ends a line that the import left open
        print_answer(error=failure)
    elif sys.argv[1:]:
        answer(sys.argv[1:])
    else:
        print(json.dumps(toolchain()))
