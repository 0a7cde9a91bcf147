"""Commands that train: one module each."""
