"""What an encoder computes on a GPU by kernels of our own (Triton), and the captured graphs of its passes."""
