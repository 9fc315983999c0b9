"""Computations of published programs where they differ from their papers."""
