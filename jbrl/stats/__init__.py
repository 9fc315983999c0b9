"""Statistics of a score table.

Modules here read tables with named columns; none starts a simulation.
"""
