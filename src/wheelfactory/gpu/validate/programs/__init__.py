"""Programs that the Python of a user runs, by path: of the factory they can import nothing, only what is installed."""
