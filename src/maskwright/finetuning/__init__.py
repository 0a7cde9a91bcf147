"""Fine-tuning and measuring: labelled files, tasks, metrics, seeds and results."""
