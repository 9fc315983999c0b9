"""Pages, tables and figures of a study.

Modules here read tables and dictionaries; none starts a simulation.
"""
