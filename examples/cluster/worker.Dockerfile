# IMAGE: the image in which setup.py runs (matrix.yaml names it), so that workers have its compiler
ARG IMAGE
FROM debian:forky-slim AS buildbox
RUN apt-get update && apt-get install --yes --no-install-recommends buildbox
COPY collect_buildbox.sh /
RUN sh /collect_buildbox.sh

FROM ${IMAGE}
COPY --from=buildbox /opt/buildbox /opt/buildbox
RUN ln -s /opt/buildbox/bin/buildbox-run-hosttools /usr/bin/buildbox-run-hosttools
ENV PATH=/opt/buildbox/bin:${PATH}
