"""Training: what a run starts from, its steps, ranks and directory; `pretrain`."""
