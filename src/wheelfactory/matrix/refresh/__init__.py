"""Chores that edit matrix.yaml: image tags as a registry has them, torch releases as their indexes have them."""
