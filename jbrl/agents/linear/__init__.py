"""Agents with linear value functions and policies."""
