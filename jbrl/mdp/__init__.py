"""What an MDP and a belief are: pure functions of arrays."""
