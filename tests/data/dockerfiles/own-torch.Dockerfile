# Build image for cells with ROCm 6.4, torch 2.9.1 and Python 3.11.
# Rendered from docker/Dockerfile.j2: edit the template.
#
# Layers go from common to specific, so that images share as many as possible.
# hadolint global ignore=DL3059

FROM rocm/pytorch:torch-and-python

# The base may set another user, or a working folder that the container's user cannot enter.
# The factory sets the user when it starts a container, so everything below is readable by all users.
# hadolint ignore=DL3002
USER 0
WORKDIR /

# A C++ compiler to link with and patchelf to inspect wheels.
# Unpinned: distributions remove old versions, so a pin would break the build later.
# hadolint ignore=DL3008
RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends \
        g++ \
        patchelf \
 && rm -rf /var/lib/apt/lists/*

# uv installs Pythons and packages. It has its own environment, so that no build imports from it.
RUN /opt/venv/bin/python -m venv /opt/uv \
 && /opt/uv/bin/pip install --no-cache-dir uv==0.13.8

# The base's Python and torch are used in place: a new environment would not see the packages.

# Pinned packages that setup.py needs; after torch, which is large and may install other versions of them.
COPY requirements.txt /opt/requirements.txt
RUN /opt/uv/bin/uv pip install --no-cache --python /opt/venv/bin/python --requirement /opt/requirements.txt

ENV ROCM_PATH=/opt/rocm \
    PATH=/opt/venv/bin:/opt/rocm/bin:$PATH

LABEL org.opencontainers.image.title="wheelfactory build image" \
      org.opencontainers.image.base.name="rocm/pytorch:torch-and-python" \
      wheelfactory.rocm="6.4" \
      wheelfactory.torch="2.9.1" \
      wheelfactory.python="3.11"

# No entrypoint of the base around the build command. `docker run -it` gives a shell.
ENTRYPOINT []
CMD ["bash"]
