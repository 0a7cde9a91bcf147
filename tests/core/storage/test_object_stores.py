"""Errors of object stores: each names the URL, the cause and the remedy."""

import errno
import importlib
import sys
from pathlib import Path

import pytest

from maskwright.core.errors import DeviceError
from maskwright.core.storage.object_stores import download_folder, is_url, open_store, store_problems


def test_urls_are_distinguished_from_paths() -> None:
    assert all(map(is_url, ("s3://bucket/a", "gs://bucket", "memory://a", "file://a")))
    assert not any(map(is_url, ("a/b.txt", r"C:\\a", "C://a", "novels.txt:0.5", "owner/name", "")))


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("runs/copy", "'runs/copy' is not a URL. Allowed: s3://BUCKET/PATH"),
        ("s4://bucket/a", r"unknown kind of store 's4'.* Did you mean 's3://'"),
    ],
)
def test_what_is_no_url_is_refused(url: str, named: str) -> None:
    with pytest.raises(DeviceError, match=named):
        open_store(url)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = importlib.import_module("fsspec.registry")

    for package, protocol in (("s3fs", "s3"), ("gcsfs", "gs")):
        monkeypatch.setitem(sys.modules, package, None)
        monkeypatch.delitem(registry._registry, protocol, raising=False)
    for url, package in (("s3://bucket/a.txt", "s3fs"), ("gs://bucket/a.txt", "gcsfs")):
        with pytest.raises(DeviceError, match=rf"{url} needs a package that is not installed\. .*{package}"):
            open_store(url)


class NoCredentialsError(Exception):
    """As botocore's."""


@pytest.mark.parametrize(
    ("raised", "named"),
    [
        (NoCredentialsError("Unable to locate credentials"), "NoCredentialsError: Unable to locate credentials"),
        (FileNotFoundError("The specified bucket does not exist"), "bucket, does not exist .The specified bucket"),
        (PermissionError("Access Denied"), "PermissionError: Access Denied"),
    ],
    ids=["credentials", "bucket", "permission"],
)
def test_errors_of_a_store_name_the_url(raised: Exception, named: str) -> None:
    expected = pytest.raises(DeviceError, match=rf"cannot access s3://b/c: .*{named}.* AWS_ACCESS_KEY_ID")
    with expected, store_problems("s3://b/c"):
        raise raised


def test_a_full_disk_is_named() -> None:
    with pytest.raises(DeviceError, match="the disk is full while s3://b/c is copied"), store_problems("s3://b/c"):
        raise OSError(errno.ENOSPC, "full")


@pytest.mark.parametrize(
    ("name", "size", "named"),
    [
        ("../a.txt", 3, "names the file '../a.txt'"),
        ("/a.txt", 3, "names the file '/a.txt'"),
        ("a.txt", 4, "3 of 4 bytes"),
    ],
)
def test_a_folder_is_downloaded_whole_or_not_at_all(name: str, size: int, named: str, tmp_path: Path) -> None:
    system, path = open_store("memory://downloads")
    for stored in ("first", "second"):
        system.pipe_file(f"{path}/{stored}", b"abc")
    objects, calls = {"b/c.txt": (f"{path}/first", 3), name: (f"{path}/second", size)}, list[tuple[int, int]]()
    with pytest.raises(DeviceError, match=named):
        download_folder(system, "memory://downloads", objects, tmp_path / "new", lambda *call: calls.append(call))
    assert not list(tmp_path.iterdir())
    objects = {"b/c.txt": (f"{path}/first", 3), "a.txt": (f"{path}/second", 3)}
    download_folder(system, "memory://downloads", objects, tmp_path / "new", lambda *call: calls.append(call))
    assert {file.relative_to(tmp_path / "new").as_posix(): file.read_bytes() for file in tmp_path.rglob("*.txt")} == {
        "a.txt": b"abc",
        "b/c.txt": b"abc",
    }
    assert calls[-1] == (6, 6)
