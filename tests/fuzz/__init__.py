"""A coverage-guided fuzzer of the readers: any bytes give a result or a documented error.

Each reader is a target in `fuzz.targets`; `fuzz.seeds` has the start inputs, `fuzz.shapes` the mutations that keep an
input well-formed. Run one from the folder of the tests with ``python -m fuzz elf --runs 100000``.
"""
