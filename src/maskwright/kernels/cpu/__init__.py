"""C code for inference and for attention in training, compiled on the machine that uses it."""
