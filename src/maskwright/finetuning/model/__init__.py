"""The model of a fine-tuning: an encoder with a task head."""
