"""Builds in containers, whose images add a cell's Python and torch to a base image of matrix.yaml."""
