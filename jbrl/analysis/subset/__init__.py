"""Which few environments stand for all? Representative subsets after Aitchison, Sweetser and Hutter (2022), for any table of scores."""
