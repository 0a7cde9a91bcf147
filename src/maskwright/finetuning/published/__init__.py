"""Published benchmarks and fine-tuning settings, as tables."""
