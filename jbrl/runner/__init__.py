"""Running of studies."""
