"""Tree search over histories, for agents that plan in belief space.

BAMCP: `uct` searches; `tree` holds a tree in flat arrays; `urn` draws next states as if the whole
MDP had been drawn from the posterior; `rollout_policy` is the one beyond the tree. BFS3:
`forward_search` gives each action its value from the trees of `forward_tree`, whose arrays
`trees_last` reads and writes. BOSS and SBOSS, which search no tree but share the machinery:
`merged_rows` draws models, and `merged` solves the MDP that merges them. `hashing` gives random
numbers; `memory`, `native` and `stacked` make all of it quick on CPUs.
"""
