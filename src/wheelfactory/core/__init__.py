"""The base of all other packages, importing none of them: errors, files, subprocesses, cells, labels, the host."""
