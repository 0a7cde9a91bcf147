"""Input that is broken on purpose, for the tests of everything that reads files.

`MASKWRIGHT_FUZZ_EXAMPLES=5000 pytest tests/test_hostile_input.py` looks further, with other examples in every run.
"""

import copy
import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from maskwright.core.errors import MaskwrightError

_EXAMPLES = int(os.environ.get("MASKWRIGHT_FUZZ_EXAMPLES", "0"))

fuzzing = settings(
    max_examples=_EXAMPLES or 25,
    derandomize=not _EXAMPLES,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)

BROKEN_JSON = {
    "deep list": b"[" * 100_000 + b"]" * 100_000,
    "deep object": b'{"a": ' * 100_000,
    "many digits": b'{"a": ' + b"1" * 5000 + b"}",
    "not UTF-8": b'{"a": "\xff"}',
    "truncated": b'{"a": [1, ',
    "empty": b"",
    "zeros": b"\0" * 100,
}

_PIECES = [
    *(b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\xc3", b'"', b"'", b",", b";", b"|", b"\t", b" ", b"\r"),
    *(b"\n", b"\n\n", b"\x0c", b"\xe2\x80\xa8", b"\x1b]52;c;ZQ==\x07", b"[", b"]", b"{", b"}", b":", b"\\", b"\\ud800"),
    *(b"#", b"-1", b"1e999", b"NaN", b"9" * 30, b"9" * 5000, b"null", b"true", b"{}", b"[]", b"[" * 990),
    *(b'{"a":' * 3000, b"../../../etc/passwd", b"w" * 100_000, b"-DOCSTART-", b"= x =\n", b"\xe6\x96\x87"),
    *(b"id", b"label", b"text"),
]  # fmt: skip

ODD_VALUES: list[Any] = [
    *(None, True, False, 0, -1, 1, 2, 3, 0.5, -0.5, 0.9999999999, 1e-320, 1e308, 1e999, float("nan")),
    *(2**31, 2**63, 2**64, 10**9, 10**12, 10**30, 10**400),
    *("", "0", "x", "\ud800", "\0", "../../../etc/passwd", "/dev/zero", "w" * 10_000, "\x1b]52;c;ZQ==\x07"),
    *([], {}, [[]], [None], [0], [-1], [10**9], ["x"], {"0": "x"}, {"a": {"b": []}}, [[1, 2], ["x", 3]]),
]


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


@st.composite
def damaged(draw: st.DrawFn, seeds: list[bytes]) -> bytes:
    """Return one of the seeds with some bytes cut, repeated, changed or put in."""
    data = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(1, 5))):
        start = draw(st.integers(0, len(data)))
        end = draw(st.integers(start, min(len(data), start + 40)))
        change = draw(st.sampled_from(["insert", "insert", "replace", "delete", "repeat", "cut", "byte"]))
        piece = draw(st.sampled_from(_PIECES))
        match change:
            case "insert":
                data = data[:start] + piece + data[start:]
            case "replace":
                data = data[:start] + piece + data[end:]
            case "delete":
                data = data[:start] + data[end:]
            case "repeat":
                data = data[:end] + data[start:end] * draw(st.sampled_from([1, 2, 50])) + data[end:]
            case "cut":
                data = data[:start]
            case "byte":
                data = data[:start] + bytes([draw(st.integers(0, 255))]) + data[start + 1 :]
    return data


@st.composite
def altered(draw: st.DrawFn, value: Any, names: list[str]) -> Any:
    """Return JSON-like data with one to three of its values, anywhere, replaced by odd ones, or entries added."""
    value = json.loads(json.dumps(value))
    for _ in range(draw(st.integers(1, 3))):
        node = value
        while True:
            keys: list[Any] = list(node) + names if isinstance(node, dict) else list(range(len(node)))
            if not keys:
                break
            key = draw(st.sampled_from(keys))
            inner = node[key] if not isinstance(node, dict) or key in node else None
            if isinstance(inner, dict | list) and inner and draw(st.integers(0, 3)):
                node = inner
                continue
            if isinstance(node, dict) and draw(st.integers(0, 7)) == 0:
                node.pop(key, None)
            else:
                node[key] = copy.deepcopy(draw(st.sampled_from([*ODD_VALUES, nested(300)])))
            break
    return value


def only_clear_errors(read: Callable[[], object]) -> None:
    """Call a function that may fail with the project's own errors, and with no other exception."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            read()
    except MaskwrightError as error:
        error.__str__()
    except BaseException as error:  # also a panic in Rust, which is no Exception
        raise AssertionError(f"{type(error).__name__}: {str(error)[:500]}") from error


def pipe(path: Path) -> Path:
    """Make a named pipe that nobody writes to: whoever opens it to read waits forever."""
    os.mkfifo(path)
    return path
