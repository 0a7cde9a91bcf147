"""Commands that use a model: one module each."""
