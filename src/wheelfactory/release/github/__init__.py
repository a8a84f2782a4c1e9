"""A GitHub repository's releases as a place to publish to: wheels by tag, kernel archives by name."""
