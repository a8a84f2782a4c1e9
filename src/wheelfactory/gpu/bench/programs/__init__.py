"""Programs that measure, run by path in the Python of a user; of the factory they import what stands beside them."""
