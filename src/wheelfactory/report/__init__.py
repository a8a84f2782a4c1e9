"""Reports: the matrix and manifest rows in; what people read out (coverage, notes, packages, answers). All pure."""
