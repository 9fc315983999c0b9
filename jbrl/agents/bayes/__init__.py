"""Agents that plan or search in the belief about a finite MDP."""
