#!/bin/sh
# Run a buildbox worker until it is killed: worker.sh SERVER NAME HIP_COMPILER FOLDER
#   SERVER        http://HOST:PORT, or https:// with TLS
#   NAME          the name in results; must be unique
#   HIP_COMPILER  what `survey.py HIPCC` prints here (docs/how-to/compile-on-a-cluster.md)
#   FOLDER        for inputs and the socket between the two programs; its path must be short
# JOBS: number of compiles at once (default: the number of cores).
set -eu

server=$1 name=$2 compiler=$3 folder=$4
mkdir -p "${folder}/cas"
cd "${folder}"
# the default stages inputs with FUSE, which a container does not have
BUILDBOX_STAGER=copy-or-link buildbox-casd --cas-remote="${server}" --bind="unix:${folder}/casd.sock" \
    --quota-high=5G "${folder}/cas" &
while [ ! -S "${folder}/casd.sock" ]; do sleep 0.1; done
# a worker ends when the server has forgotten it, such as after a restart
while :; do
    buildbox-worker --bots-remote="${server}" --cas-remote="unix:${folder}/casd.sock" --bots-retry-limit=10 \
        --buildbox-run=/usr/bin/buildbox-run-hosttools --concurrent-jobs="${JOBS:-$(nproc)}" \
        --platform "hip-compiler=${compiler}" "${name}" || true
    sleep 1
done
