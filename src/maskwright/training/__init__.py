"""Floor 3: training. Batches, the model put together, the step, the loop, and the folder a run leaves behind."""
