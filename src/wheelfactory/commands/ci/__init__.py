"""The commands of `wheelfactory ci`, which only the GitHub workflows call: one module each, as in `commands`."""
