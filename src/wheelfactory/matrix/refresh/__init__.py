"""Maintenance scripts that update image tags and torch releases in matrix.yaml."""
