"""`maskwright.load`: the tokenizer must fit the weights. tests/huggingface tests folders, test_families models."""

import shutil
from pathlib import Path

import pytest

import maskwright
from maskwright.core.errors import ConversionError, DataError


@pytest.fixture
def folder(bert_folder: Path, tmp_path: Path) -> Path:
    """A copy of a model folder."""
    shutil.copytree(bert_folder, tmp_path / "copy")
    return tmp_path / "copy"


def test_a_model_is_loaded_by_its_folder(folder: Path) -> None:
    model = maskwright.load(str(folder), device="cpu")
    assert isinstance(model, maskwright.Model)
    assert (model.name, model.max_length, model.precision) == (str(folder), 40, "fp32")


def test_a_folder_without_tokenizer_is_refused(folder: Path) -> None:
    (folder / "vocab.txt").unlink()
    with pytest.raises(DataError, match="no tokenizer"):
        maskwright.load(folder)


def test_a_tokenizer_without_mask_is_refused(folder: Path) -> None:
    pieces = (folder / "vocab.txt").read_text(encoding="utf-8").replace("[MASK]\n", "[HIDDEN]\n")
    (folder / "vocab.txt").write_text(pieces, encoding="utf-8")
    with pytest.raises(DataError, match="no mask token"):
        maskwright.load(folder)


def test_a_tokenizer_with_more_entries_than_embeddings_is_refused(folder: Path) -> None:
    with open(folder / "vocab.txt", "a", encoding="utf-8") as vocabulary:
        vocabulary.write("stranger\n")
    with pytest.raises(ConversionError, match=r"has 41 entries.*embeddings for 40"):
        maskwright.load(folder)
