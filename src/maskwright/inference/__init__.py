"""Inference: `model` loads a trained model; `fill_mask`, `embed` and `detect` use it."""
