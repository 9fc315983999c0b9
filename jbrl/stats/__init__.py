"""Statistics of score tables: nothing here starts a simulation.

Resamples are drawn in five ways, since five different things vary: the MDPs that all agents play
side by side (`paired_bootstrap`), the samples of each cell by itself, with their games, on devices
(`evaluation.bootstrap`), the samples of one algorithm within each environment
(`evaluation.metrics`), the algorithms that a subset is chosen by (`subset.robustness`), and whole
runs within equal settings (`bsuite.measures`). The mean of the middle half is
`evaluation.metrics`'s for weighted scores, `subset.preparation`'s for the plain scores of one row.
"""
