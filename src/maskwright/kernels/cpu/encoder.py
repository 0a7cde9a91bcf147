"""What `int8.c` and `fp32.c` have in common: the functions of `encoder.h`."""

import ctypes


def declare(found: ctypes.CDLL) -> None:
    """Tell Python the types of the functions."""
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    found.survey.argtypes, found.survey.restype = (pointer, pointer), ctypes.c_int
    found.embed.argtypes, found.embed.restype = (pointer, pointer, ctypes.c_int), None
    found.encode.argtypes = (pointer, pointer, pointer, ctypes.c_int)
    found.transform.argtypes = (pointer, pointer, number, number, pointer, pointer, pointer, ctypes.c_int)
    found.numbers_needed.argtypes = (number, number, ctypes.c_int)
    found.encode.restype = found.transform.restype = None
    found.numbers_needed.restype = number
