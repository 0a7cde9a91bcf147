"""Numerical kernels: PyTorch code, C for inference on a CPU (`cpu`), Triton for training on a GPU (`cuda`)."""
