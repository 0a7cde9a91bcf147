"""`int8.c`, the code for products of 8-bit numbers.

Without it the same layers are computed by the libraries that PyTorch brings (`packed.dense.Int8Dense`), more slowly.
"""

import ctypes

from maskwright.encoder.native.library import AVX512, Code


def _declare(found: ctypes.CDLL) -> None:
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    found.survey.argtypes, found.survey.restype = (pointer, pointer), ctypes.c_int
    found.embed.argtypes, found.embed.restype = (pointer, pointer, ctypes.c_int), None
    found.encode.argtypes = (pointer, pointer, pointer, ctypes.c_int)
    found.transform.argtypes = (pointer, pointer, number, number, pointer, pointer, ctypes.c_int)
    found.numbers_needed.argtypes = (number, number, ctypes.c_int)
    found.encode.restype = found.transform.restype = None
    found.numbers_needed.restype = number


CODE = Code("int8.c", {**AVX512, "avx512_vnni": "-mavx512vnni"}, _declare)
