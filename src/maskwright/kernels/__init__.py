"""Numerical kernels: PyTorch code, C for inference on a CPU (`cpu`), Triton and `torch.compile` for training on a
GPU (`cuda`)."""
