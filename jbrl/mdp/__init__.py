"""MDPs and beliefs about them: pure functions of arrays."""
