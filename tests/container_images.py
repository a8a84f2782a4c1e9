"""Images for tests, built without a registry: one like AMD's with ROCm and torch, and one with a working HIP compiler.

Their root file systems come from Debian and are cached. An image is streamed to the engine.
"""

from __future__ import annotations

import io
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from docker import DockerClient

import hip_toolchain
from hip_rocm import make_hip_rocm
from rocm_machine import make_rocm
from shared_folder import file_lock
from wheelfactory.build.environments import PYTHON, cpu_torch_version, make_build_environment
from wheelfactory.core.files import scratch_dir

RECIPE = (
    "--variant=minbase",
    "--include=ca-certificates,g++,python3,python3-dev,python3-venv",
    "--dpkgopt=path-exclude=/usr/share/man/*",
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-exclude=/usr/share/locale/*",
    "--dpkgopt=force-unsafe-io",  # an unfinished root is discarded, so nothing needs fsync
    "--customize-hook=chroot $1 python3 -m venv /opt/venv",
    # layers cannot hold two versions of it, and torch requires its own
    "--customize-hook=chroot $1 /opt/venv/bin/pip --quiet uninstall --yes setuptools",
    "--format=directory",
    "bookworm",
)
RECIPE_PYTHON = "3.11"
"""The Python of bookworm."""

CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
"""The trusted certificates of this machine, including those of its network."""

_UNUSED = (
    *("*/torch/bin/test_*", "*/torch/include", "*/torch/test"),
    *("*/config-3.*/libpython*.a", "*/gcc/*/lto1", "*/bin/*lto-dump-*"),
    *("*/llvm-*/bin/c-index-test", "*/llvm-*/bin/llvm-exegesis", "*/libclang-[0-9]*", "*/lib?san.*"),
    *("*/lib/postgresql", "*/libicu*", "*/share/perl", "*/share/i18n", "*/lib32"),
)
"""A quarter of an image, which no test needs: an engine would read, hash and write it."""

# merges layers with overlayfs, because an engine refuses an archive with a path twice; the mounts end with it
_PACK = f"""\
image=$1
while [ $# -gt 0 ]; do
    mount -t overlay -o "lowerdir=$2" overlay "$1"
    shift 2
done
exec tar --create --numeric-owner {" ".join(f"--exclude='{pattern}'" for pattern in _UNUSED)} --directory="$image" .
"""
_UNSHARE = ("unshare", "--mount", "--propagation=private", "sh", "-ec")

_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def find_missing_requirement() -> str | None:
    """Return why this machine cannot build such images, or None if it can."""
    if PYTHON != RECIPE_PYTHON:
        return f"needs Python {RECIPE_PYTHON}, for which the torch of this machine goes into the image"
    if not CERTIFICATES.exists():
        return f"needs {CERTIFICATES}"
    return hip_toolchain.find_missing_requirement()


def make_rocm_pytorch(cache: Path, client: DockerClient) -> str:
    """Build an image laid out like AMD's of ROCm 7, with /opt/venv and /opt/rocm first on PATH; return its tag.

    Debian, its Python, g++ and pip are real; ROCm and torch are those of `rocm_machine.make_rocm`. As in AMD's images,
    ROCM_PATH is not set.
    """
    root = hip_toolchain.make_root(cache, "bookworm", RECIPE)
    with file_lock(cache, "environments"):
        packages = make_build_environment(cache).site_packages
    inside = f"lib/python{PYTHON}/site-packages"
    with scratch_dir(cache) as scratch:
        added, image, with_torch = _additions(scratch), _empty(scratch / "image"), _empty(scratch / "with-torch")
        make_rocm(cache, _empty(added / "opt/rocm"), scratch / "python")
        for name in ("rocm_torch.py", "stand_in.pth"):
            shutil.copy(scratch / "python" / inside / name, with_torch)
        layers = {
            image: (added, root),
            image / "opt/venv" / inside: (with_torch, packages, root / "opt/venv" / inside),
        }
        environ = {
            "PATH": f"/opt/venv/bin:/opt/rocm/bin:{_SYSTEM_PATH}",
            "STAND_IN_TORCH": f"{cpu_torch_version()}+rocm7.2",
        }
        return _import(client, "rocm/pytorch:stand-in", environ, layers)


AMDS_TORCH = f"{cpu_torch_version()}+rocm7.2.4.git7e1940d4"

_AMDS = f"""\
FROM {{base}}
ARG triton=3.7.1+rocm7.2.4.git4768dbd6
ENV STAND_IN_TORCH={AMDS_TORCH}
RUN cd /opt/venv/lib/python{PYTHON}/site-packages \\
 && mv /opt/rocm/lib/libtorch_hip.so /opt/rocm/lib/libc10_hip.so torch/lib/ \\
 && mv torch-*.dist-info torch-$STAND_IN_TORCH.dist-info \\
 && sed -i "s/^Version:.*/Version: $STAND_IN_TORCH\\nRequires-Dist: triton==$triton/" torch-*.dist-info/METADATA \\
 && mkdir triton-$triton.dist-info \\
 && printf "Metadata-Version: 2.1\\nName: triton\\nVersion: $triton\\n" > triton-$triton.dist-info/METADATA \\
 && ln -sf /bin/true /usr/bin/apt-get
"""


def make_amds_pytorch(client: DockerClient, base: str, network: str | None) -> str:
    """Build an image on one with the torch of `make_rocm_pytorch` that is named as AMD's are; return its tag.

    Its torch has the version, the requirement and the library folder of AMD's own build: what tells that build from
    PyTorch's. Its symbols are those of the CPU build, its Triton is a name, and apt-get has nothing to install.
    """
    tag = "rocm/pytorch:rocm7.2.4_ubuntu22.04_py3.11_pytorch_release_2.13.0"
    client.images.build(
        fileobj=io.BytesIO(_AMDS.format(base=base).encode()), tag=tag, network_mode=network, forcerm=True
    )
    return tag


def make_hip_image(cache: Path, client: DockerClient) -> str:
    """Build an image with the compiler of `hip_toolchain` at AMD's paths, without torch; return its tag."""
    toolchain = hip_toolchain.make_hip_toolchain(cache)
    with scratch_dir(cache) as scratch:
        added, image = _additions(scratch), _empty(scratch / "image")
        rocm = added / "opt/rocm"
        make_hip_rocm(toolchain, rocm)
        for name in ("root", "fstab", "bin/hipcc"):
            (rocm / name).unlink()
        for link in [path for path in rocm.rglob("*") if path.is_symlink()]:
            target = link.readlink().relative_to(toolchain.root)
            link.unlink()
            link.symlink_to(Path("/") / target)
        (rocm / "bin/hipcc").symlink_to("/usr/bin/hipcc")
        environ = {"PATH": f"/opt/rocm/bin:/opt/rocm/llvm/bin:{_SYSTEM_PATH}"}
        return _import(client, "rocm/hip:debian", environ, {image: (added, toolchain.root)})


def _additions(scratch: Path) -> Path:
    """Create a layer on top of the root file system, with this machine's certificates."""
    added = scratch / "added"
    shutil.copy(CERTIFICATES, _empty(added / CERTIFICATES.parent.relative_to("/")))
    return added


def _empty(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


def _import(client: DockerClient, tag: str, environ: Mapping[str, str], layers: Mapping[Path, tuple[Path, ...]]) -> str:
    """Import the first mount point in `layers` as an image and return its tag.

    `layers` has mount points with the folders to merge there, topmost first. Raises `RuntimeError` if the import fails.
    """
    trusted = {"PIP_CERT": str(CERTIFICATES), "SSL_CERT_FILE": str(CERTIFICATES)}
    changes = [f"ENV {name}={value}" for name, value in {**environ, **trusted}.items()]
    mounts = [word for place, folders in layers.items() for word in (place, ":".join(map(str, folders)))]
    with subprocess.Popen([*_UNSHARE, _PACK, "-", *mounts], stdout=subprocess.PIPE) as packing:
        # the tag is part of the name, because podman 4.3 ignores it elsewhere
        answer = client.api.import_image_from_stream(packing.stdout, tag, changes=[*changes, 'CMD ["/bin/sh"]'])
    if packing.returncode or not client.images.list(tag):
        raise RuntimeError(f"{tag} was not imported: {answer}")
    return tag
