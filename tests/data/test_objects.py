"""Corpora at URLs: fetched once, read as local files, and fetched again when they have changed."""

import gzip
from pathlib import Path
from typing import Any

import pytest

from maskwright.core.errors import DataError, DeviceError
from maskwright.data.cleaning.store import clean_corpus
from maskwright.data.cleaning.text import Cleaning
from maskwright.data.sources import objects
from maskwright.data.sources.arguments import resolve_sources

TEXT = "The old captain watches the quiet sea. My sister paints an open door.\n\n" * 3


@pytest.fixture(autouse=True)
def _corpora(store: Any) -> None:
    for name in ("en/b.jsonl.gz", "en/a.txt", "en/deep/c.txt", "en/d.pdf"):
        store.pipe(f"/corpora/{name}", gzip.compress(b'{"text": "x"}') if name.endswith("gz") else TEXT.encode())


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of all downloads."""
    paths: list[str] = []
    download = objects.download

    def counting(system: Any, path: str, *rest: Any) -> None:
        paths.append(path)
        download(system, path, *rest)

    monkeypatch.setattr(objects, "download", counting)
    return paths


def test_a_url_names_an_object_a_folder_or_a_pattern(tmp_path: Path) -> None:
    arguments = ["memory://corpora/en/a.txt:0.5", "memory://corpora/en/*.gz#text", "memory://corpora/en"]
    one, some, folder = resolve_sources(arguments, cache=tmp_path)
    assert ([path.name for path in one.files], one.weight, one.name) == (["a.txt"], 0.5, "a.txt")
    assert one.files[0].read_text() == TEXT
    assert one.files[0].is_relative_to(tmp_path)
    assert ([path.name for path in some.files], some.column) == (["b.jsonl.gz"], "text")
    assert [path.name for path in folder.files] == ["a.txt", "b.jsonl.gz", "c.txt"]
    assert dict(folder.ignored_files) == {".pdf": 1}


def test_an_object_is_fetched_once_and_again_when_it_has_changed(tmp_path, store, fetched):
    progress: list[tuple[str, int, int | None]] = []
    for _ in range(2):
        resolve_sources("memory://corpora/en/a.txt", cache=tmp_path, progress=lambda *state: progress.append(state))
    assert fetched == ["/corpora/en/a.txt"]
    assert progress[-1] == ("fetching (bytes)", len(TEXT), len(TEXT))
    store.pipe("/corpora/en/a.txt", TEXT.upper().encode())
    (source,) = resolve_sources("memory://corpora/en/a.txt", cache=tmp_path)
    assert len(fetched) == 2
    assert source.files[0].read_text() == TEXT.upper()


def test_text_at_a_url_is_that_of_a_local_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(TEXT)
    settings: Any = {"cleaning": Cleaning(deduplicate="none"), "workers": 1}
    local = clean_corpus([tmp_path / "a.txt"], cache=tmp_path / "here", **settings)
    remote = clean_corpus(["memory://corpora/en/a.txt"], cache=tmp_path / "there", **settings)
    assert local.fingerprint == remote.fingerprint
    assert local.sentences(0) == remote.sentences(0)


def test_an_object_cut_short_is_refused_and_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(system: Any, path: str, file: Path, on_bytes: Any) -> None:
        file.write_bytes(system.cat_file(path)[:-7])

    with monkeypatch.context() as patch:
        patch.setattr(objects, "download", cut)
        with pytest.raises(DataError, match=r"a\.txt, fetched from memory://.*, has 206 of 213 bytes"):
            resolve_sources("memory://corpora/en/a.txt", cache=tmp_path)
    with pytest.warns(UserWarning, match="damaged and is rebuilt"):
        (source,) = resolve_sources("memory://corpora/en/a.txt", cache=tmp_path)
    assert source.files[0].read_text() == TEXT


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("memory://corpora/en/z.txt", "cannot access memory://corpora/en/z.txt: it, or its bucket, does not exist"),
        ("memory://corpora/en/*.csv", "names no text files; it names nothing"),
        ("memory://corpora/en/d.pdf", r"names no text files; it names 1 \.pdf"),
        ("s4://corpora/a.txt", "unknown kind of store 's4'"),
    ],
)
def test_a_url_without_text_is_an_error(tmp_path: Path, url: str, named: str) -> None:
    with pytest.raises((DataError, DeviceError), match=named):
        resolve_sources(url, cache=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.slow  # It starts a server.
def test_objects_of_s3_are_read(tmp_path: Path, s3: Any) -> None:
    s3.mkdir("corpora")
    for name in ("wiki/a.txt", "wiki/b.txt"):
        s3.pipe(f"corpora/{name}", TEXT.encode())
    for _ in range(2):
        (source,) = resolve_sources("s3://corpora/wiki/*.txt", cache=tmp_path)
    assert [path.read_text() for path in source.files] == [TEXT] * 2
    assert len(list(tmp_path.iterdir())) == 2
    s3.pipe("corpora/wiki/a.txt", TEXT.upper().encode())
    (source,) = resolve_sources("s3://corpora/wiki/", cache=tmp_path)
    assert [path.read_text() for path in source.files] == [TEXT.upper(), TEXT]
    with pytest.raises(DeviceError, match="its bucket, does not exist"):
        resolve_sources("s3://other/a.txt", cache=tmp_path)
