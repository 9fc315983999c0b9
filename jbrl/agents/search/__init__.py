"""Tree search over histories, for agents that plan in belief space.

BAMCP: `uct` searches; `tree` holds a tree in flat arrays. BFS3 gives each action its value from the
trees of `forward_tree`, whose arrays `trees_last` reads and writes. BOSS and SBOSS, which search no
tree but share the machinery: `merged_rows` draws models, and `merged` solves the MDP that merges
them. `draws` gives random numbers; `native` makes all of it quick on CPUs.
"""
