"""Certified bounds of the Bayes-optimal value of a distribution over finite MDPs."""
