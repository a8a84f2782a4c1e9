"""Programs that run where the compiler is, on a host or in an image: standard library only, Python 3.9."""
