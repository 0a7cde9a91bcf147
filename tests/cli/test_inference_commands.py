"""`maskwright fill-mask`, `detect` and `embed`: tables, JSON and files; errors in one line; the same in Python."""

import json
import shutil

import numpy as np
import pytest
import transformers
from safetensors.torch import load_file, save_file

import maskwright
from maskwright.core.errors import DataError
from maskwright.core.storage.files import write_json
from maskwright.inference.texts import gather
from maskwright.recipes.catalog import get


@pytest.fixture
def folders(bert_folder, electra_folder, tmp_path, monkeypatch):
    """Folders of models by the command that uses them; the home directory is a temporary one."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    return {"fill-mask": bert_folder, "detect": electra_folder, "embed": bert_folder}


def test_fill_mask_prints_a_table_for_each_mask(run, bert_folder):
    code, out, _ = run("fill-mask", bert_folder, "the [MASK] and <mask> sat", "我爱[MASK]", "--top-k", 3)
    assert code == 0
    assert "the [MASK] and <mask> sat  (mask 2 of 2)" in out
    assert (out.count("score"), out.count("%")) == (3, 9)


def test_fill_mask_prints_json(run, roberta_folder):
    _, out, _ = run("fill-mask", roberta_folder, "the [MASK] sat", "-k", 2, "--json")
    (text,) = json.loads(out)
    assert text["text"] == "the [MASK] sat"
    assert [set(best) for best in text["masks"][0]] == [{"score", "token", "token_id", "sequence"}] * 2


def test_detect_prints_the_marked_text(run, electra_folder):
    _, out, err = run("detect", electra_folder, "the cat sat", "a dog", "--threshold", 0)
    first, second = out.splitlines()
    assert first.startswith("the{")
    assert (first.count("%}"), second.count("%}")) == (3, 2)
    assert "5 of 5 tokens look replaced (probability at least 0)" in err
    _, out, _ = run("detect", electra_folder, "the cat sat", "--json")
    fields = {"token", "token_id", "start", "end", "probability", "replaced"}
    assert [set(token) for token in json.loads(out)[0]["tokens"]] == [fields] * 3


@pytest.mark.parametrize(
    ("command", "part"),
    [
        ("fill-mask", "word_embeddings"),
        ("fill-mask", "predictions.bias"),
        ("detect", "prediction"),
        ("embed", "LayerNorm"),
    ],
)
def test_a_model_of_nan_has_no_results(run, folders, tmp_path, command, part):
    folder = shutil.copytree(folders[command], tmp_path / "model")
    tensors = load_file(folder / "model.safetensors")
    assert any(part in name for name in tensors)
    for name in tensors:
        if part in name:
            tensors[name].fill_(float("nan"))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    for option in ("--json", "--out"):
        out = [option, *([tmp_path / ("a.npy" if command == "embed" else "a.jsonl")] if option == "--out" else [])]
        code, printed, err = run(command, folder, "the [MASK] sat", *out)
        assert (code, printed) == (2, "")
        assert "NaN or infinite" in err
    assert not list(tmp_path.glob("a.*"))


def test_a_fine_tuned_model_of_nan_has_no_results(run, bert_folder, tmp_path):
    config = transformers.BertConfig.from_pretrained(bert_folder)
    model = transformers.BertForSequenceClassification(config)
    model.classifier.bias.data.fill_(float("inf"))
    model.save_pretrained(tmp_path / "model")
    for name in ("vocab.txt", "tokenizer_config.json"):
        shutil.copy(bert_folder / name, tmp_path / "model")
    (tmp_path / "a.csv").write_text("text,label\nthe cat,LABEL_0\na dog,LABEL_1\n")
    for arguments in (
        ("predict", tmp_path / "model", "the cat"),
        ("evaluate", tmp_path / "model", "--file", tmp_path / "a.csv"),
    ):
        code, printed, err = run(*arguments, "--json")
        assert (code, printed) == (2, ""), err
        assert "NaN or infinite" in err


def test_embed_prints_json_with_or_without_a_file(run, bert_folder, tmp_path):
    printed = json.loads(run("embed", bert_folder, "the cat", "--pooling", "first", "--json")[1])
    assert (printed["shape"], printed["pooling"], printed["normalized"]) == ([1, 32], "first", False)
    expected = maskwright.load(bert_folder).embed("the cat", pooling="first")
    np.testing.assert_allclose(printed["vectors"], expected, rtol=1e-6)
    printed = json.loads(run("embed", bert_folder, "the cat", "--json", "--out", tmp_path / "v.npy")[1])
    assert set(printed) == {"shape", "pooling", "normalized", "out", "truncated"}


@pytest.mark.parametrize(("command", "field"), [("fill-mask", "masks"), ("detect", "tokens")])
def test_commands_and_functions_read_and_write_the_same_files(run, folders, tmp_path, command, field):
    (tmp_path / "in.txt").write_text("a [MASK]\nwe [MASK] the <mask>\n", encoding="utf-8")
    code, out, err = run(command, folders[command], "--file", "~/in.txt", "--out", "~/out.jsonl")
    assert (code, out) == (0, "")
    assert "2 texts in" in err
    written = (tmp_path / "out.jsonl").read_text(encoding="utf-8")
    assert len([json.loads(line)[field] for line in written.splitlines()]) == 2
    function = getattr(maskwright, command.replace("-", "_"))
    function(folders[command], file=tmp_path / "in.txt", out="~/again.jsonl")
    assert (tmp_path / "again.jsonl").read_text(encoding="utf-8") == written


def test_embed_and_its_function_write_a_row_for_each_line(run, folders, tmp_path):
    texts = ["the cat", "", *["a dog ran"] * 300]
    (tmp_path / "in.txt").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    _, out, err = run("embed", folders["embed"], "--file", "~/in.txt", "--out", "~/v.npy", "--normalize")
    assert out == ""
    assert "302 texts, 32 dimensions, written to" in err
    assert "1 text of 302 blank" in err
    vectors = np.load(tmp_path / "v.npy")
    np.testing.assert_array_equal(vectors, maskwright.load(folders["embed"]).embed(texts, normalize=True))
    again = maskwright.embed(folders["embed"], texts[:2], file="~/in.txt", out="~/again.npy", normalize=True)
    np.testing.assert_array_equal(again, np.load(tmp_path / "again.npy"))
    np.testing.assert_allclose(again[2:], vectors, atol=1e-6)


def test_texts_of_a_column_are_read(run, folders, tmp_path):
    (tmp_path / "in.csv").write_text("id,text,label\n1,the cat,good\n2,a dog ran,bad\n", encoding="utf-8")
    _, _, err = run("embed", folders["embed"], "--file", "~/in.csv", "--out", "~/v.npy")
    expected = maskwright.embed(folders["embed"], ["the cat", "a dog ran"])
    np.testing.assert_array_equal(np.load(tmp_path / "v.npy"), expected)
    assert "texts from column 'text' of" in err
    _, out, _ = run("embed", folders["embed"], "--file", "~/in.csv", "--column", "label", "--json")
    assert json.loads(out)["shape"] == [2, 32]
    labels = maskwright.embed(folders["embed"], file="~/in.csv", column="label")
    np.testing.assert_array_equal(labels, maskwright.embed(folders["embed"], ["good", "bad"]))


def test_embed_shows_nearest_neighbors_and_notes_models_without_sentence_training(run, bert_folder, tmp_path):
    _, out, err = run("embed", bert_folder, "the cat", "the cats", "我爱北京")
    assert "nearest neighbor" in out
    assert "3 texts, 32 dimensions" in err
    assert "not trained to compare texts" in err
    shutil.copytree(bert_folder, tmp_path / "trained")
    (tmp_path / "trained" / "modules.json").write_text("[]")
    assert "not trained to compare texts" not in run("embed", tmp_path / "trained", "the cat")[2]


@pytest.mark.parametrize(("name", "unreliable"), [("macbert/tiny", True), ("bert/tiny", False), (None, False)])
def test_fill_mask_notes_models_that_never_saw_masks(run, bert_folder, tmp_path, name, unreliable):
    shutil.copytree(bert_folder, tmp_path / "run")
    # A recipe of another version is no obstacle.
    recipe = {"a field of": "next year"} if name is None else get(name).model_dump(mode="json")
    write_json(tmp_path / "run" / "recipe.json", recipe)
    code, _, err = run("fill-mask", tmp_path / "run", "a [MASK]", "--json")
    assert code == 0
    assert ("without [MASK]" in err) == unreliable


def test_warnings_and_the_generator_that_fills_are_lines_on_standard_error(run, electra_folder):
    _, out, err = run("fill-mask", electra_folder, "[MASK]" + " cat" * 60, "--json")
    note, warning = err.splitlines()
    assert note == f"predicted by the generator in {electra_folder / 'generator'}"
    assert warning.startswith("warning: the text has more than 40 tokens")
    assert len(json.loads(out)[0]["masks"][0]) == 5


@pytest.mark.parametrize(
    ("command", "arguments", "message"),
    [
        ("fill-mask", ["the cat"], "the text has no mask: 'the cat'"),
        ("fill-mask", [], "no text was given"),
        ("fill-mask", ["the [MASK]", "--device", "gpu"], "Did you mean 'cuda'?"),
        ("fill-mask", ["--file", "absent.txt"], "cannot read absent.txt"),
        ("detect", ["sch\udcf6n"], "input 1: lone surrogate at position 4"),
        ("embed", ["a", "--out", "v.txt"], "cannot write vectors as 'v.txt'. Allowed: a name that ends in .npy"),
        ("embed", ["--file", "~/latin.txt"], "latin.txt, line 2: not UTF-8"),
    ],
)
def test_errors_are_one_line(run, folders, tmp_path, command, arguments, message):
    (tmp_path / "latin.txt").write_bytes(b"fine\nna\xefve\n")
    code, out, err = run(command, folders[command], *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


def test_an_unknown_pooling_is_refused(run, bert_folder):
    code, out, err = run("embed", bert_folder, "a", "--pooling", "maen")
    assert (code, out) == (2, "")
    assert "'maen' is not one of 'mean'" in err


def test_embed_checks_the_output_file_first(run, bert_folder, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setattr(maskwright.Model, "embed", lambda *_, **__: pytest.fail("embedding started"))
    code, _, err = run("embed", bert_folder, "a", "--out", tmp_path / "file" / "v.npy")
    assert code == 2
    assert "cannot write" in err


@pytest.mark.parametrize("command", ["fill-mask", "detect", "embed", "predict", "evaluate"])
def test_an_input_is_not_overwritten(run, folders, tmp_path, command):
    text = '{"text": "the [MASK] sat", "label": "a"}\n'
    file, link = tmp_path / ("file.npy" if command == "embed" else "file.jsonl"), tmp_path / "link.jsonl"
    file.write_text(text, encoding="utf-8")
    link.symlink_to(file)
    # The model does not matter: it is refused before the model is read.
    folder = folders.get(command, folders["embed"])
    for source in (file, link):
        code, _, err = run(command, folder, "--file", source, "--out", file)
        assert (code, "overwritten" in err) == (2, True)
    assert file.read_text(encoding="utf-8") == text
    if command in folders:
        with pytest.raises(DataError, match="overwritten"):
            getattr(maskwright, command.replace("-", "_"))(folder, file=link, out=file)


def test_functions_without_a_text_are_errors(bert_folder):
    with pytest.raises(maskwright.MaskwrightError, match="no text was given"):
        maskwright.embed(bert_folder)


def test_texts_of_the_command_line_come_first_and_surrogates_are_refused_with_their_position(tmp_path):
    file = tmp_path / "texts.jsonl"
    file.write_text('"two"\n\n"three 🙂"\n', encoding="utf-8")
    assert gather(["one"], file) == ["one", "two", "", "three 🙂"]
    with pytest.raises(maskwright.MaskwrightError, match="input 2: lone surrogate at position 4"):
        gather(["one", "sch\udcf6n"], None)
    file.write_text('"one"\n\n{"text": "a \\ud83d"}\n', encoding="utf-8")
    with pytest.raises(maskwright.MaskwrightError, match=r"texts\.jsonl, line 3: lone surrogate at position 3"):
        gather(["one"], file)


def test_export_writes_a_folder_and_warns_of_a_missing_license(run, bert_folder, tmp_path):
    code, _, err = run("export", bert_folder, "--to", "hub", "--out", tmp_path / "exported")
    assert code == 0
    assert (tmp_path / "exported" / "model.safetensors").is_file()
    assert "--license" in err
    assert str(tmp_path / "exported") in err
