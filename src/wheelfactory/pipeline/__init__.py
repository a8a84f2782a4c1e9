"""The pipeline: selected cells in, the jobs of the GitHub workflows out, and what became of them."""
