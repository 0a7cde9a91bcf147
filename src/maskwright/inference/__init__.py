"""Floor 4: a trained model in use. `model` loads it, `fill_mask` and `embed` are what it does."""
