"""What Python hands to passes over rows of tokens (`passes.h`)."""

import ctypes

from maskwright.model.dropout import RandomWords


class Dropout(ctypes.Structure):
    """`Dropout` of `passes.h`."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("rows", "columns")),
        ("least", ctypes.c_int64),
        ("scale", ctypes.c_float),
    ]


def dropout_of(words: RandomWords | None, rate: float) -> Dropout:
    """Return what is dropped, which points into the words: they are kept until the call is over.

    Args:
        words: Of the masks; None drops nothing.
        rate: Share dropped.
    """
    if words is None:
        return Dropout()
    least, scale = RandomWords.limits(rate)
    return Dropout(words.rows.data_ptr(), words.columns.data_ptr(), least, scale)
