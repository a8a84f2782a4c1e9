"""The module that is added to every Triton wheel, and which wheel it is added to."""
