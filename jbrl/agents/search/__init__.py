"""Tree search over histories, for agents that plan in belief space.

BAMCP: `uct` searches a tree in flat arrays, `uct_groups` eight of them together. BFS3 gives each
action its value from the trees of `forward_tree`. BOSS and SBOSS search no tree but share the
machinery: `merged` draws models, and solves the MDP that merges them. `draws` gives random numbers;
`native` makes all of it quick on CPUs.
"""
