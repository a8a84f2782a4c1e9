# The image in which cells for ROCm 6.4, torch 2.9.1 and Python 3.11 are built.
# Rendered from docker/Dockerfile.j2: change that.
#
# A layer for each reason, so that images which differ further down share those further up.
# hadolint global ignore=DL3059

FROM rocm/pytorch:torch-and-python

# A base may name another user, and a folder that is closed to the one whom a container is started as.
# The factory names the user when it starts a container; nothing below is made for one user only.
# hadolint ignore=DL3002
USER 0
WORKDIR /

# The compiler cache, a C++ compiler that links, and patchelf to repair a wheel by hand.
# No versions: distributions remove the old ones, so a pin would break the build one day.
# hadolint ignore=DL3008
RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends \
        ccache \
        g++ \
        patchelf \
 && rm -rf /var/lib/apt/lists/*

# uv, which brings Pythons and packages, in a folder of its own: nothing that a build imports can come from it.
RUN /opt/venv/bin/python -m venv /opt/uv \
 && /opt/uv/bin/pip install --no-cache-dir uv==0.13.8

# Python and torch are the base's own, in its own environment: one on top would not see the packages.

# What setup.py imports and calls, pinned; after torch, which is large and may bring other versions of it.
COPY requirements.txt /opt/requirements.txt
RUN /opt/uv/bin/uv pip install --no-cache --python /opt/venv/bin/python --requirement /opt/requirements.txt

ENV ROCM_PATH=/opt/rocm \
    PATH=/opt/venv/bin:/opt/rocm/bin:$PATH

LABEL org.opencontainers.image.title="wheelfactory build image" \
      org.opencontainers.image.base.name="rocm/pytorch:torch-and-python" \
      wheelfactory.rocm="6.4" \
      wheelfactory.torch="2.9.1" \
      wheelfactory.python="3.11"

# A program that a base starts around its command would stand around ours; started by hand, there is a shell.
ENTRYPOINT []
CMD ["bash"]
