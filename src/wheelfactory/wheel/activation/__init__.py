"""The module that the factory adds to every Triton wheel."""
