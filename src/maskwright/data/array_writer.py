"""Writing .npy files whose length is known only at the end, in constant memory."""

from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import DTypeLike, NDArray


class ArrayWriter:
    """Appends to a one-dimensional .npy file; a context manager.

    Args:
        path: The file.
        dtype: Type of the elements; what is appended is cast to it.
    """

    def __init__(self, path: Path, dtype: DTypeLike) -> None:
        self.count = 0
        self._dtype = np.dtype(dtype)
        self._file: BinaryIO = open(path, "wb")  # noqa: SIM115 (closed by `close`)
        self._header_bytes = self._write_header()

    def append(self, values: NDArray[Any]) -> None:
        """Append elements. Shape (N,)."""
        self._file.write(np.ascontiguousarray(values, dtype=self._dtype).data)
        self.count += len(values)

    def close(self) -> None:
        """Write the final length into the file's head."""
        self._file.seek(0)
        # numpy's format leaves room for the length to grow, for exactly this.
        if self._write_header() != self._header_bytes:  # pragma: no cover
            raise AssertionError("the head of a .npy file changed its size")
        self._file.close()

    def _write_header(self) -> int:
        description = {"descr": self._dtype.str, "fortran_order": False, "shape": (self.count,)}
        np.lib.format.write_array_header_1_0(self._file, description)
        return self._file.tell()

    def __enter__(self) -> "ArrayWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
