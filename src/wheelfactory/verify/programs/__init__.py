"""Programs that other Pythons run by path; they can import only what is installed there, not this package."""
