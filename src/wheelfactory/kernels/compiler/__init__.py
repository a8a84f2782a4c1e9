"""What runs beside the compiler, on a host or in an image: standard library only, and valid on Python 3.9."""
