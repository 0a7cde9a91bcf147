"""Files that CORPUS arguments resolve to, and errors for those that resolve to none."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from maskwright.core.errors import DataError
from maskwright.data.sources.arguments import HubDataset, resolve_sources
from maskwright.data.sources.hub import hub_documents


@pytest.fixture
def corpus_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path: Path, text: str = "Some text.") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("written", "weight"), [("novels.txt:0.7", 0.7), ("novels.txt:2", 2.0), ("novels.txt:1e-1", 0.1)]
)
def test_number_after_the_last_colon_is_the_weight(corpus_folder: Path, written: str, weight: float) -> None:
    write(corpus_folder / "novels.txt")
    assert resolve_sources([written])[0].weight == weight


def test_path_that_exists_is_taken_as_written(corpus_folder: Path) -> None:
    write(corpus_folder / "part:2" / "a.txt")
    write(corpus_folder / "part" / "b.txt")
    write(corpus_folder / "docstrings" / "c.txt")
    assert resolve_sources(["part:2"])[0].files == (Path("part:2/a.txt"),)
    assert resolve_sources(["part:2:3"])[0].weight == 3.0
    assert resolve_sources(["docstrings"])[0].kind == "files"


def test_folder_is_read_recursively_in_order_and_counts_what_it_passes_over(corpus_folder: Path) -> None:
    for name in ("b.txt", "a/z.jsonl.gz", "a/y.MD", ".hidden/x.txt", ".x.txt", "p.pdf", "q.pdf", "t.parquet.gz"):
        write(corpus_folder / "corpora" / name)
    (source,) = resolve_sources(["corpora"])
    assert [path.relative_to("corpora").as_posix() for path in source.files] == ["b.txt", "a/y.MD", "a/z.jsonl.gz"]
    assert dict(source.ignored_files) == {".pdf": 2, ".parquet.gz": 1}


def test_glob_takes_what_can_be_read(corpus_folder: Path) -> None:
    for name in ("n1.txt", "n2.txt", "n3.pdf", "deep/n4.txt"):
        write(corpus_folder / name)
    assert [path.name for path in resolve_sources(["n*"])[0].files] == ["n1.txt", "n2.txt"]
    (source,) = resolve_sources(["**/*.txt:0.5"])
    assert ([path.name for path in source.files], source.weight) == (["n4.txt", "n1.txt", "n2.txt"], 0.5)


def test_column_is_named_after_a_hash(corpus_folder: Path) -> None:
    write(corpus_folder / "t.csv")
    (source,) = resolve_sources(["t.csv#body:0.5"])
    assert (source.files, source.column, source.weight) == ((Path("t.csv"),), "body", 0.5)


def test_hub_names_are_recognized(corpus_folder: Path) -> None:
    plain, full = resolve_sources(["owner/name", "owner/name[config, test]#body:0.3"])
    assert (plain.kind, plain.dataset) == ("hub", HubDataset("owner/name", None, "train"))
    assert full.dataset == HubDataset("owner/name", "config", "test")
    assert (full.column, full.weight) == ("body", 0.3)
    assert resolve_sources(["imdb[test]"])[0].dataset is not None


def test_names_are_unique(corpus_folder: Path) -> None:
    write(corpus_folder / "a" / "x.txt")
    write(corpus_folder / "b" / "x.txt")
    names = [source.name for source in resolve_sources(["a/x.txt", "b/x.txt", "b/x.txt"])]
    assert names == ["x.txt", "x.txt (2)", "x.txt (3)"]


@pytest.mark.parametrize("argument", ["novel.txt", "./novel.txt", "data/novel.txt", "novels:0.5"])
def test_missing_path_suggests_the_nearest_name(corpus_folder: Path, argument: str) -> None:
    write(corpus_folder / "novels.txt")
    write(corpus_folder / "data" / "novels.txt")
    with pytest.raises(DataError, match=r"no such file or folder.*novels\.txt"):
        resolve_sources([argument])


@pytest.mark.parametrize("name", ["a.json", "a.pdf", "a", "a.parquet.gz"])
def test_unread_suffix_is_refused(corpus_folder: Path, name: str) -> None:
    write(corpus_folder / name)
    with pytest.raises(DataError, match=r"are not read.*\.jsonl"):
        resolve_sources([name])


def test_error_of_a_folder_without_text_names_its_files_and_readable_formats(corpus_folder: Path) -> None:
    write(corpus_folder / "pictures" / "a.png")
    with pytest.raises(DataError, match=r"1 \.png.*\.txt, \.md, \.jsonl"):
        resolve_sources(["pictures"])


DATASET = HubDataset("owner/name", None, "train")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    state = SimpleNamespace(rows=[{"id": 1, "text": "One."}, {"id": 2, "text": None}], fails_after=None, asked=None)

    def load_dataset(*arguments: Any, **options: Any) -> Iterator[dict[str, Any]]:
        state.asked = (arguments, options)
        for number, row in enumerate(state.rows):
            if number == state.fails_after:
                raise ConnectionError("the hub does not answer\nand more lines")
            yield row

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    return state


def test_column_is_chosen_or_found(hub: SimpleNamespace) -> None:
    hub.rows = [{"title": "t", "body": "b"}]
    columns: list[str] = []
    assert list(hub_documents(DATASET, "body", columns.append)) == ["b"]
    assert columns == ["body"]
    with pytest.raises(DataError, match="several columns"):
        list(hub_documents(DATASET, None))


@pytest.mark.parametrize(("after", "says"), [(0, "at its start"), (1, "after 1 rows")])
def test_failure_of_the_hub_is_an_error(hub: SimpleNamespace, after: int, says: str) -> None:
    hub.fails_after = after
    with pytest.raises(DataError, match=rf"owner/name.*{says}.*the hub does not answer\. Check the name"):
        list(hub_documents(DATASET, None))
