"""Wheel files: read what one holds, rewrite one canonically, give it METADATA that protects the user."""
