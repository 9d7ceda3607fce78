"""Where requests become arrays, and nowhere else."""
