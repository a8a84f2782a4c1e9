"""A coverage-guided fuzzer of the readers: whatever the bytes, only the documented errors come out of them.

Each reader is a target of `fuzz.targets`; `fuzz.seeds` makes inputs to start from, `fuzz.shapes` changes an input so
that it stays what it is. Run one from the folder of the tests with ``python -m fuzz elf --runs 100000``.
"""
