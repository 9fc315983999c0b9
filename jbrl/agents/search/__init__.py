"""Tree search over histories, for agents that plan in belief space.

`uct` searches; `tree` holds a tree in flat arrays; `urn` draws next states as if the whole MDP had been drawn from the posterior;
`rollout` is the policy beyond the tree; `hashing` gives random numbers; `memory` and `native` make all of it quick on CPUs.
"""
