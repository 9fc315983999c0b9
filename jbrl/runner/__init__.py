"""What happens when a study runs."""
