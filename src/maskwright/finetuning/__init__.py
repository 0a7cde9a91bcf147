"""Fine-tuning and measuring: labeled files, tasks, metrics, seeds and results."""
