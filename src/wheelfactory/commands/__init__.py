"""The commands, one module each: `add` adds its options to a parser, `execute` runs it and returns the exit code."""
