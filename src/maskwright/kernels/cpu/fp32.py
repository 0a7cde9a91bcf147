"""`fp32.c`, the code for an encoder in use with products of fp32 numbers.

Without it the same layers are computed by the libraries that PyTorch brings (`packed.dense.FusedDense`), more slowly
where texts are short.
"""

from pathlib import Path

from maskwright.kernels.cpu.encoder import declare
from maskwright.kernels.cpu.library import AVX512, Code

CODE = Code(Path(__file__).with_name("fp32.c"), AVX512, declare, shares_threads=True)
