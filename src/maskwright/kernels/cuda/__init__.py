"""Triton kernels and compiled functions for training on a GPU, and CUDA graphs of forward and backward passes."""
