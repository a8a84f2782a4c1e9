#!/bin/sh
# Copy Debian's buildbox with all its libraries to /opt/buildbox, to run in an image with an older C library.
set -eu

target=/opt/buildbox
mkdir -p "${target}/lib" "${target}/bin"
cp /lib64/ld-linux-x86-64.so.2 "${target}/lib/"
for name in buildbox-casd buildbox-worker buildbox-run-hosttools; do
    cp "/usr/bin/${name}" "${target}/lib/"
    ldd "/usr/bin/${name}" | awk '$3 ~ "^/" {print $3}' | xargs cp --target-directory "${target}/lib"
    # not LD_LIBRARY_PATH: the compiler would inherit it
    printf '#!/bin/sh\nexec %s/lib/ld-linux-x86-64.so.2 --library-path %s/lib %s/lib/%s "$@"\n' \
        "${target}" "${target}" "${target}" "${name}" > "${target}/bin/${name}"
    chmod +x "${target}/bin/${name}"
done
