"""Compile kernels on a cluster that serves the Remote Execution API v2 (the protocol of Bazel)."""

import os

os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # read when gRPC is imported; lost connections are reported by ours
