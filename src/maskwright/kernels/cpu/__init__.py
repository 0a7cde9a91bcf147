"""C code for inference, compiled on the machine that uses it."""
