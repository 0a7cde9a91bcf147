"""A run on disk: directory, checkpoints, metrics, mirror, report; what all runs do."""
