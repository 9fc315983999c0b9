"""A study on a SLURM cluster."""
