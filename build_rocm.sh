#!/usr/bin/env bash
# Build flash-attn wheels for AMD ROCm with upstream's own, unpatched setup.py.
#
#   ./build_rocm.sh FLASH_ATTN PYTHON TORCH ROCM [--backend ck|triton]
#   ./build_rocm.sh 2.8.3 3.11 2.9.1 6.4
#
# ROCM may be `auto`: the version found on this machine. The paths of the wheels are the only lines on stdout.
#
#   PYTORCH_ROCM_ARCH     offload archs, separated by ;   (default: those of the GPU here, else all the release allows)
#   MAX_JOBS              compiles to run at once         (default: as many as cores and memory allow)
#   BUILD_TRITON_BACKEND  true: build the Triton wheel as well
#   ROCM_PATH             where ROCm is                   (default: hipcc on PATH, or /opt/rocm)
#
# Handed SOURCE_DIR (with setup.py), BUILD_PYTHON (with torch) and RAW_DIR, it runs that setup.py and nothing
# else: this is how the factory calls it, on a host and in a container. Where SOURCE_DIR may not be written to,
# WORK_DIR names a folder to copy it into first.
set -Eeuo pipefail
trap 'echo "build_rocm.sh:${LINENO}: failed: ${BASH_COMMAND}" >&2' ERR

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

if [[ -z ${SOURCE_DIR:-} ]]; then
    exec "${here}/factory" build "$@"
fi

: "${BUILD_PYTHON:?is needed beside SOURCE_DIR}" "${RAW_DIR:?is needed beside SOURCE_DIR}"
mkdir -p "${RAW_DIR}"
"${BUILD_PYTHON}" "${here}/scripts/probe_toolchain.py" > "${RAW_DIR}/toolchain.json"
if [[ -n ${WORK_DIR:-} ]]; then
    cp -R "${SOURCE_DIR}" "${WORK_DIR}"
fi
cd "${WORK_DIR:-${SOURCE_DIR}}"
"${BUILD_PYTHON}" setup.py bdist_wheel --dist-dir "${RAW_DIR}" >&2
ls "${RAW_DIR}"/*.whl
