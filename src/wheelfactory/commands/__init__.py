"""The commands, one module each: `add` describes its options, `execute` runs it and gives the exit code."""
