"""Evaluation of any score table: percentiles, the game, intervals, ranks, metrics."""
