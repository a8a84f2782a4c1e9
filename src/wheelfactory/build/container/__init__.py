"""Building in containers: the image of a cell, rendered on top of a base image that matrix.yaml names."""
