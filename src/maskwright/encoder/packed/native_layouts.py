"""The structures of `int8.c` that say what an encoder and a batch are."""

import ctypes

from maskwright.encoder.packed.native_dense import DenseLayout


class NormLayout(ctypes.Structure):
    """`Norm` of `int8.c`."""

    _fields_ = [("weight", ctypes.c_void_p), ("bias", ctypes.c_void_p)]


class BlockLayout(ctypes.Structure):
    """`Block` of `int8.c`."""

    _fields_ = [("first", DenseLayout), ("second", DenseLayout), ("norm", NormLayout)]


class TablesLayout(ctypes.Structure):
    """`Tables` of `int8.c`."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("words", "positions", "segments")),
        *((name, ctypes.c_int64) for name in ("num_words", "num_positions", "num_segments", "position_offset")),
        ("width", ctypes.c_int64),
    ]


class EncoderLayout(ctypes.Structure):
    """`Encoder` of `int8.c`."""

    _fields_ = [
        ("tables", TablesLayout),
        *((name, ctypes.c_void_p) for name in ("attention", "ffn", "attention_plan", "ffn_plan")),
        *((name, ctypes.c_int64) for name in ("layers", "width", "inner", "heads", "activation")),
        ("epsilon", ctypes.c_float),
    ]


class BatchLayout(ctypes.Structure):
    """`Batch` of `int8.c`."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("ids", "position_ids", "segment_ids", "sequence_ids")),
        *((name, ctypes.c_void_p) for name in ("offsets", "places", "read", "embedded", "hidden", "result")),
        *((name, ctypes.c_int64) for name in ("slots", "row_length", "tokens", "runs", "longest", "num_read")),
    ]
