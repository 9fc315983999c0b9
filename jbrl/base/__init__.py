"""Errors, records, parameters, plugins, and the columns of the score table."""
