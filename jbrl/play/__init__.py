"""Play one experiment: train, draw environments, play them on all devices, measure."""
