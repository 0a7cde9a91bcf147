"""Our own C code, compiled where it is used. It is an advantage, not a requirement: PyTorch's libraries do the same."""
