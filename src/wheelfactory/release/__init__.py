"""The release: manifest rows and evidence, and publishing: what it was or complete, never in between."""
