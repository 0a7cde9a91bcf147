"""Training: batches, model with its heads, step, loop, checkpoints and run directory."""
