"""The search page: matrix and manifest rows in, the files of a static page that finds a wheel for a machine out."""
