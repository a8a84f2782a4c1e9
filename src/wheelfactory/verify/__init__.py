"""Verify a wheel with gates, one result each; a wheel that fails a gate is never published."""
