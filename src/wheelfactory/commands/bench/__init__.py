"""`wheelfactory bench`: the benchmarks, and `bench trend`, which compares their reports."""
