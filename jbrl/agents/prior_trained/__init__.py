"""Agents that are trained on environments drawn from the prior."""
