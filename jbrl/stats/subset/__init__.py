"""Choice of few environments that represent all.

Representative subsets after Aitchison, Sweetser and Hutter (2022), for any table of scores.
"""
