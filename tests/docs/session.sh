# shellcheck shell=bash
# What the commands of a page run with; read by session.py, which gives the path of the page.
: "${PAGE:?}"

# Stop at the first command that fails, and name its place.
strict() {
    set -Eeuo pipefail
    trap 'echo "${PAGE}:${LINENO}: failed: ${BASH_COMMAND}" >&2' ERR
}

# Go on after a block that may fail.
lenient() {
    set +e
    trap - ERR
}

# Refuse the exit code $1 of the block at line $2, if it is not $3.
ends_with() {
    if [[ $1 != "$3" ]]; then
        echo "${PAGE}:$2: the block ended with $1, not with $3" >&2
        exit 1
    fi
}

# Insert stdin into the file $1, behind the one line of it that is the first of stdin.
insert_into() {
    local first place rest
    IFS= read -r first
    rest=$(mktemp)
    cat > "${rest}"
    place=$(grep --fixed-strings --line-regexp --line-number -- "${first}" "$1" | cut --delimiter=: --fields=1)
    sed --in-place "${place}r ${rest}" "$1"
    rm "${rest}"
}

strict
