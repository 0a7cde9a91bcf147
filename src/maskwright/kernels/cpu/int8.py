"""`int8.c`, the code for products of 8-bit numbers.

Without it the same layers are computed by the libraries that PyTorch brings (`packed.dense.Int8Dense`), more slowly.
"""

from pathlib import Path

from maskwright.kernels.cpu.encoder import declare
from maskwright.kernels.cpu.library import AVX512, Code

CODE = Code(Path(__file__).with_name("int8.c"), {**AVX512, "avx512_vnni": "-mavx512vnni"}, declare)
