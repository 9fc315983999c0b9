"""Columns of the score table, which is all that running and reading share.

One row is one score: that of one agent in one environment, for example its discounted return on one
MDP.
"""

# an agent in an experiment; `parameters` is JSON text with sorted keys
AGENT = ("experiment", "algorithm", "parameters")
# an environment drawn, an MDP for example: pairing goes by both
MDP = ("seed", "unit")
RETURNS = (*AGENT, *MDP, "score")
