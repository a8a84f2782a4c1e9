#!/usr/bin/env bash
# Build flash-attn wheels for AMD ROCm with upstream's own, unpatched setup.py: see usage below.
#
# With SOURCE_DIR (contains setup.py), BUILD_PYTHON (has torch) and RAW_DIR set, it only runs that setup.py. The factory
# calls it like this, on a host and in a container. WORK_DIR is a folder to copy SOURCE_DIR to, if that is read-only.
set -Eeuo pipefail
trap 'echo "build_rocm.sh:${LINENO}: failed: ${BASH_COMMAND}" >&2' ERR

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

usage() {
    cat << 'EOF'
usage: ./build_rocm.sh FLASH_ATTN PYTHON TORCH ROCM [--backend ck|triton] [OPTION...]

Build one flash-attn wheel for AMD ROCm. Only the path of the wheel is printed to stdout.

  ./build_rocm.sh 2.8.3 3.11 2.9.1 6.4    flash-attn 2.8.3 for Python 3.11, torch 2.9.1 and ROCm 6.4
  ./build_rocm.sh 2.8.3 3.11 2.9.1 auto   for the ROCm of this machine
  ./build_rocm.sh --help                  list all options

environment:
  PYTORCH_ROCM_ARCH     offload archs, separated by ;   (default: of this machine's GPU, else all supported)
  MAX_JOBS              parallel compiles               (default: limited by cores and memory)
  BUILD_TRITON_BACKEND  true: build the Triton wheel too
  ROCM_PATH             folder of ROCm                  (default: of hipcc on PATH, else /opt/rocm)
EOF
}

if [[ -z ${SOURCE_DIR:-} ]]; then
    if (( $# == 0 )); then
        usage >&2
        exit 2 # as for any wrong arguments; nothing is installed just to say so
    fi
    exec "${here}/factory" build "$@"
fi

: "${BUILD_PYTHON:?must be set together with SOURCE_DIR}" "${RAW_DIR:?must be set together with SOURCE_DIR}"
mkdir -p "${RAW_DIR}"
"${BUILD_PYTHON}" "${here}/scripts/probe_toolchain.py" > "${RAW_DIR}/toolchain.json"
if [[ -n ${WORK_DIR:-} ]]; then
    cp -R "${SOURCE_DIR}" "${WORK_DIR}"
fi
cd "${WORK_DIR:-${SOURCE_DIR}}"
"${BUILD_PYTHON}" setup.py bdist_wheel --dist-dir "${RAW_DIR}" >&2
ls "${RAW_DIR}"/*.whl
