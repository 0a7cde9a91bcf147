"""Checksums of records; the book of checksums: right, computed once for each state of a file."""

import errno
import os
from pathlib import Path

import pytest

from maskwright.core.errors import DeviceError
from maskwright.core.storage import checksums, files
from maskwright.core.storage.checksums import (
    ChecksumCache,
    compare_files,
    read_record,
    write_record,
)
from maskwright.core.storage.files import checksum, read_json


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
        with ChecksumCache(book) as held:
            assert held.checksum(file) == held.known(file) == checksum(file)
    assert looked_at == ["a"]
    file.write_bytes(b"two")
    os.utime(file, ns=(1, 1))
    with ChecksumCache(book) as held:
        assert held.known(file) is None
        assert held.checksum(file) == checksum(file)
    assert looked_at == ["a", "a"]


def test_books_of_two_processes_are_joined_and_files_that_are_gone_forgotten(tmp_path: Path) -> None:
    book = tmp_path / "book.json"
    files = [tmp_path / name for name in "abc"]
    for file in files:
        file.write_bytes(file.name.encode())
    with ChecksumCache(book) as ours:
        with ChecksumCache(book) as theirs:
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
    with ChecksumCache(book) as actual:
        assert actual.checksum(file) == checksum(file)
    assert list(read_json(book)) == [str(file)]


@pytest.mark.parametrize("harm", ['{"a": 2, "checksum": "%s"}', '{"a": 1}', "[]", "{", '{"a": 1, "checksum": 3}', "["])
def test_record_that_is_not_what_was_written_is_refused(tmp_path: Path, harm: str) -> None:
    path = tmp_path / "record.json"
    write_record(path, {"a": 1, "b": {"é": [1.5, None]}})
    assert read_record(path) == {"a": 1, "b": {"é": [1.5, None]}}
    path.write_text(harm.replace("%s", read_json(path)["checksum"]) * (100_000 if harm == "[" else 1))
    with pytest.raises(ValueError, match=r"record\.json "):
        read_record(path)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EACCES, errno.EIO])
def test_a_file_that_cannot_be_read_now_is_not_called_damaged(tmp_path, monkeypatch, number):
    def fail(path: Path) -> None:
        raise OSError(number, os.strerror(number))

    write_record(tmp_path / "a", {})
    monkeypatch.setattr(files, "open_file", fail)
    for read in (lambda: read_record(tmp_path / "a"), lambda: compare_files(tmp_path, {"a": ""})):
        with pytest.raises(DeviceError, match=rf"cannot read .*a: {os.strerror(number)}"):
            read()
