"""Prose comes out of docstrings of all styles; code, tables and fields do not; nothing is imported."""

from pathlib import Path

import pytest

from maskwright.data.sources import docstrings
from maskwright.data.sources.docstrings import (
    docstring_documents,
    docstrings_fingerprint,
    is_english_prose,
    prose_paragraphs,
)

REST = """Open a connection to the server, and wait until it answers or the time is over.

The :class:`~http.client.Connection` that is returned must be closed by the caller, who may use
it in a ``with`` statement (see `the manual <http://x.org>`_) for that::

    with open_connection(host) as connection:
        this is code and it is not to be kept

.. note:: A connection that was closed on the other side is *not* noticed before
   it is used again.

.. code-block:: python

    more_code = "that is not prose"

:param host: The name of the host to which the connection is to be opened.
:returns: nothing of interest to anybody at all

>>> open_connection("localhost")
<Connection object at 0x7f00>
"""
NUMPY = """
Compute the mean of the values along the axis that was given.

Parameters
----------
axis : int, optional
    The axis along which the mean is computed; by default it is that of the flattened array.
dtype : data-type

Notes
-----
The sum is accumulated in double precision, because single precision loses too much.

Examples
--------
>>> mean([1, 2])
1.5

=====  =====
Table  of it
=====  =====
"""
GOOGLE = """Return the nearest of the options to the name that was given by the user.

Args:
    name (str): What the user wrote, which may be misspelt in any way.
    options: names

Returns:
    The option that looks most like the name, or None if none of them is close.

Example:
    >>> nearest('a', ['b'])
"""


@pytest.mark.parametrize(
    ("docstring", "prose"),
    [
        (
            REST,
            [
                "Open a connection to the server, and wait until it answers or the time is over.",
                "The Connection that is returned must be closed by the caller, who may use it in a with statement "
                "(see the manual) for that.",
                "A connection that was closed on the other side is not noticed before it is used again.",
                "The name of the host to which the connection is to be opened.",
            ],
        ),
        (
            NUMPY,
            [
                "Compute the mean of the values along the axis that was given.",
                "The axis along which the mean is computed; by default it is that of the flattened array.",
                "The sum is accumulated in double precision, because single precision loses too much.",
            ],
        ),
        (
            GOOGLE,
            [
                "Return the nearest of the options to the name that was given by the user.",
                "What the user wrote, which may be misspelt in any way.",
                "The option that looks most like the name, or None if none of them is close.",
            ],
        ),
    ],
)
def test_docstrings_give_their_prose(docstring: str, prose: list[str]) -> None:
    assert prose_paragraphs(docstring) == prose


@pytest.mark.parametrize(
    "text",
    [
        "Return repr(self).",
        "x = y + [z for z in (1, 2, 3) if z in the_list_of_all] or a or b.",
        "and this begins in the middle of a sentence that was cut off.",
        "This one does not end as a sentence would and so it is out",
        "Copyright 2001 by the people who wrote this, all rights reserved to them.",
        "One two three four five six seven eight nine ten eleven twelve.",
        "+---+---+ | a | b | of the and in is to it for |",
    ],
)
def test_what_is_no_prose_is_left_out(text: str) -> None:
    assert not is_english_prose(text)


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def docstring(number: int) -> str:
        return (
            f'"""{REST}\n\nThis is paragraph number {number} of the package, and it has enough words to be kept."""\n'
        )

    for number, name in enumerate(
        ["beta/mod.py", "alpha/__init__.py", "alpha/sub/mod.py", "alpha/tests/test_a.py", "gamma.py"]
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(docstring(number) + f"raise RuntimeError('imported')\n\ndef f():\n    '''{GOOGLE}'''\n")
    (tmp_path / "beta" / "broken.py").write_text(docstring(9) + "def (:\n")
    (tmp_path / "std").mkdir()
    monkeypatch.setattr(
        docstrings.sysconfig, "get_path", lambda name: str(tmp_path / "std" if name == "stdlib" else tmp_path)
    )
    monkeypatch.setattr(docstrings.site, "getsitepackages", list)
    return tmp_path


def test_one_document_a_module_in_order_of_packages(packages: Path) -> None:
    documents = list(docstring_documents(workers=1))
    numbers = [next(str(n) for n in range(10) if f"paragraph number {n} " in document) for document in documents]
    assert numbers == ["1", "2", "0", "4"]
    assert all(document.count("\n\n") == 7 for document in documents)
    assert "What the user wrote" in documents[0]


def test_bounds_are_kept(packages: Path) -> None:
    documents = list(docstring_documents(workers=1))
    size = len(documents[0].encode())
    assert list(docstring_documents(workers=1, max_bytes=size)) == documents[:1]


def test_fingerprint_follows_the_packages(packages: Path) -> None:
    before = docstrings_fingerprint()
    assert docstrings_fingerprint() == before
    (packages / "gamma.py").write_text('"""Other."""\n')
    assert docstrings_fingerprint() != before
