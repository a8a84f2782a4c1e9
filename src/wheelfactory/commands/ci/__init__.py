"""The commands of `wheelfactory ci`, which only the GitHub workflows run: one module each, as in `commands`."""
