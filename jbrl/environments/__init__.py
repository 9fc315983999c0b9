"""Environments, one file per environment or family."""
