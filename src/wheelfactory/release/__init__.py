"""Releases: manifest rows, evidence, and publishing, which either completes or changes nothing."""
