# syntax=docker/dockerfile:1
# The gateway's image with common runtimes for scripts: Python packages, jq, kpt, Node. Take out what you do not need: docs/runtimes.md.
#   docker build -f deploy/examples/runtimes.Dockerfile -t registry.example.com/appset-gateway-runtimes:0.1.0 deploy/examples
ARG GATEWAY=appset-gateway:0.1.0

# Python packages, in a virtual environment made by the Python that runs it: the gateway's image and this one have Debian's.
FROM debian:bookworm-slim AS python
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3 python3-venv \
    && rm -rf /var/lib/apt/lists/*
COPY requirements.txt /tmp/requirements.txt
RUN python3 -m venv /opt/venv \
    && /opt/venv/bin/pip install --no-cache-dir --requirement /tmp/requirements.txt

# Programs of other images. kpt's image is for amd64 only; it is a Go program (`go install github.com/kptdev/kpt@…`) for other machines.
FROM ghcr.io/kptdev/kpt:v1.0.0-beta.61 AS kpt
FROM node:24-bookworm-slim AS node

FROM $GATEWAY
USER 0:0
# libstdc++6 and libatomic1 are for Node.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends jq libatomic1 libstdc++6 \
    && rm -rf /var/lib/apt/lists/*
COPY --from=python /opt/venv /opt/venv
COPY --from=kpt /usr/local/bin/kpt /usr/local/bin/kpt
COPY --from=node /usr/local/bin/node /usr/local/bin/node
# The root file system is read-only in Kubernetes: Python must not try to write compiled modules.
ENV PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
