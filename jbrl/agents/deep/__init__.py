"""Agents with neural networks."""
