#!/usr/bin/env bash
# Serve GitHub jobs one after the other, each with a runner, home and work folder made for it and removed after it.
#
#   scripts/ephemeral_runner.sh OWNER/REPO LABEL RUNNER_ARCHIVE [JOBS]
#
# RUNNER_ARCHIVE is actions-runner-linux-x64-VERSION.tar.gz of GitHub. JOBS is how many jobs to serve (default: no end).
# gh must be logged in as someone who may add runners. For a machine of its own for each job, start this with JOBS=1 when
# a virtual machine boots, and discard the machine when it ends.
set -Eeuo pipefail

if (($# < 3)); then
    echo "error: bad arguments: 3 are needed" >&2
    echo "hint: scripts/ephemeral_runner.sh OWNER/REPO LABEL RUNNER_ARCHIVE [JOBS]" >&2
    exit 2
fi
repository=$1 label=$2 archive=$3 jobs=${4:-0}

serve_one_job() {
    local machine token
    machine=$(mktemp --directory)
    # shellcheck disable=SC2064 # the variable is local, and gone when the subshell exits
    trap "rm -rf '${machine}'" EXIT
    mkdir "${machine}/runner" "${machine}/home"
    tar --extract --file "${archive}" --directory "${machine}/runner"
    token=$(gh api --method POST "repos/${repository}/actions/runners/registration-token" --jq .token)
    cd "${machine}/runner"
    # the job sees this home and nothing of the user's environment: no token of gh, no cache of an earlier job
    local fresh=(env --ignore-environment "PATH=${PATH}" "HOME=${machine}/home" "LANG=C.UTF-8")
    "${fresh[@]}" ./config.sh --url "https://github.com/${repository}" --token "${token}" --labels "${label}" \
        --name "${label}-$(basename "${machine}")" --ephemeral --unattended
    "${fresh[@]}" ./run.sh
}

for ((served = 0; jobs == 0 || served < jobs; served++)); do
    # not as a condition, in which a failing command would not end the job
    set +e
    (
        set -e
        serve_one_job
    )
    code=$?
    set -e
    if ((code != 0)); then
        echo "error: the runner failed: job $((served + 1)), exit code ${code}" >&2
        exit 1
    fi
done
