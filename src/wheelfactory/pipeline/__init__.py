"""A cell from its sources to its row: on one machine, and as the jobs of a workflow."""
