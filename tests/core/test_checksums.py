"""The book of checksums: right, computed once for each state of a file, and never in the way."""

import os
from pathlib import Path

import pytest

from maskwright.core import checksums
from maskwright.core.checksums import ChecksumBook
from maskwright.core.files import checksum, read_json


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files whose content is read."""
    names: list[str] = []

    def counted(path: Path) -> str:
        names.append(path.name)
        return checksum(path)

    monkeypatch.setattr(checksums, "checksum", counted)
    return names


def test_checksum_is_read_from_the_book_until_the_file_changes(tmp_path: Path, looked_at: list[str]) -> None:
    file, book = tmp_path / "a", tmp_path / "deep" / "book.json"
    file.write_bytes(b"one")
    for _ in range(3):
        with ChecksumBook(book) as held:
            assert held.checksum(file) == held.known(file) == checksum(file)
    assert looked_at == ["a"]
    file.write_bytes(b"two")
    os.utime(file, ns=(1, 1))
    with ChecksumBook(book) as held:
        assert held.known(file) is None
        assert held.checksum(file) == checksum(file)
    assert looked_at == ["a", "a"]


def test_books_of_two_processes_are_joined_and_files_that_are_gone_forgotten(tmp_path: Path) -> None:
    book = tmp_path / "book.json"
    files = [tmp_path / name for name in "abc"]
    for file in files:
        file.write_bytes(file.name.encode())
    with ChecksumBook(book) as ours:
        with ChecksumBook(book) as theirs:
            theirs.checksum(files[0])
            theirs.checksum(files[1])
        ours.checksum(files[2])
        files[0].unlink()
    assert sorted(read_json(book)) == [str(file) for file in files[1:]]


@pytest.mark.parametrize("held", [b"\xff", b"[", b"[]", b'{"%s": 1}', b'{"%s": [1, 2, 3]}'])
def test_book_that_cannot_be_read_counts_as_empty(tmp_path: Path, held: bytes) -> None:
    file, book = tmp_path / "a", tmp_path / "book.json"
    file.write_bytes(b"one")
    book.write_bytes(held.replace(b"%s", str(file).encode()))
    with ChecksumBook(book) as found:
        assert found.checksum(file) == checksum(file)
    assert list(read_json(book)) == [str(file)]


def test_book_that_cannot_be_written_is_let_be(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one")
    with ChecksumBook(tmp_path / "a" / "book.json") as book:
        assert book.checksum(tmp_path / "a") == checksum(tmp_path / "a")


def test_checksum_of_a_missing_file_is_the_systems_error(tmp_path: Path) -> None:
    with ChecksumBook(tmp_path / "book.json") as book, pytest.raises(FileNotFoundError):
        book.checksum(tmp_path / "a")
    assert not (tmp_path / "book.json").exists()
