"""A model is found where it is meant, and what is wrong with a folder is said."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import maskwright
from maskwright.core.errors import ConversionError, DataError, DeviceError


def test_load_is_at_the_front_door(bert_folder: Path) -> None:
    model = maskwright.load(str(bert_folder), device="cpu")
    assert isinstance(model, maskwright.Model)
    assert model.max_length == 40


def test_import_of_the_package_loads_nothing_heavy() -> None:
    program = "import sys, maskwright; maskwright.__version__; print(*{'torch', 'pydantic'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_package_names_only_what_it_has() -> None:
    assert all(getattr(maskwright, name) is not None for name in maskwright.__all__)
    assert set(maskwright.__all__) < set(dir(maskwright))
    with pytest.raises(AttributeError, match="no attribute 'pretran'"):
        maskwright.pretran  # type: ignore[attr-defined]  # noqa: B018


def test_load_suggests_the_nearest_folder(bert_folder: Path) -> None:
    misspelt = bert_folder.parent / "tiny-brt"
    with pytest.raises(ConversionError, match=r"no folder .*tiny-brt.*Did you mean .*tiny-bert'\?"):
        maskwright.load(misspelt)
    with pytest.raises(ConversionError, match=r"Did you mean .*tiny-bert'\?"):
        maskwright.load(str(misspelt))


def test_load_suggests_a_folder_for_a_bare_name(bert_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(bert_folder.parent)
    with pytest.raises(ConversionError, match="Did you mean 'tiny-bert'"):
        maskwright.load("tiny_bert")


def test_load_leaves_hub_names_to_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConversionError, match="hub"):
        maskwright.load("nobody/nothing-of-that-name")


def test_load_refuses_a_file(bert_folder: Path) -> None:
    with pytest.raises(ConversionError, match="is a file"):
        maskwright.load(bert_folder / "model.safetensors")


def test_load_refuses_a_folder_without_weights(bert_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(bert_folder, folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(ConversionError, match="no weights"):
        maskwright.load(folder)


def test_load_says_that_a_run_has_no_model_yet(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(ConversionError, match="has not saved a model yet"):
        maskwright.load(tmp_path)


def test_load_refuses_a_folder_without_tokenizer(bert_folder: Path, tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors"):
        shutil.copy(bert_folder / name, tmp_path)
    with pytest.raises(DataError, match="holds no tokenizer"):
        maskwright.load(tmp_path)


def test_load_refuses_a_tokenizer_without_mask(bert_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(bert_folder, folder)
    pieces = (folder / "vocab.txt").read_text(encoding="utf-8").replace("[MASK]\n", "[HIDDEN]\n")
    (folder / "vocab.txt").write_text(pieces, encoding="utf-8")
    with pytest.raises(DataError, match="no mask token"):
        maskwright.load(folder)


def test_load_refuses_a_tokenizer_with_more_entries_than_embeddings(bert_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(bert_folder, folder)
    with open(folder / "vocab.txt", "a", encoding="utf-8") as vocabulary:
        vocabulary.write("stranger\n")
    with pytest.raises(ConversionError, match=r"has 41 entries.*embeddings for 40"):
        maskwright.load(folder)


def test_load_of_a_bare_encoder_gives_vectors_only(bert_folder: Path, tmp_path: Path) -> None:
    from transformers import BertModel

    BertModel.from_pretrained(bert_folder).save_pretrained(tmp_path)
    for name in ("vocab.txt", "tokenizer_config.json"):
        shutil.copy(bert_folder / name, tmp_path)
    model = maskwright.load(tmp_path)
    assert (model.embed("cat") == maskwright.load(bert_folder).embed("cat")).all()
    with pytest.raises(ConversionError, match="Use `embed`"):
        model.fill_mask("[MASK]")


def test_load_refuses_a_gpu_that_is_not_there(bert_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(DeviceError, match="no CUDA GPU"):
        maskwright.load(bert_folder, device="cuda")
