"""Benchmarks: a Python with torch and sizes in, what attention and training cost there out, as reports and plots."""
