"""Compile kernels on a cluster that serves the Remote Execution API v2 (the protocol of Bazel)."""
