"""Exports give the results of their source, load in the programs they are for, or leave nothing."""

import json
import os
import shutil
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

import maskwright
from maskwright.checkpoints.checkpoint import read_checkpoint
from maskwright.checkpoints.quiet import quiet
from maskwright.checkpoints.sentence_folder import SentenceModules, write_sentence_modules
from maskwright.core.errors import ConversionError, MaskwrightError
from maskwright.core.storage.files import read_json, write_json
from maskwright.core.storage.tensor_files import write_tensors
from maskwright.finetuning.model.fine_tuned import build
from maskwright.finetuning.tasks.question_answering import QuestionAnswering
from maskwright.finetuning.tasks.texts import MultiLabel, Regression
from maskwright.serving import export, onnx_graph
from maskwright.serving.parity import Parity, examples_for, texts_for
from tests.finetuning.tiny_tuned import FAMILIES, LABELS, TEXTS, pretrained
from tests.serving.servers import TASKS as SERVED

pytest.importorskip("transformers")

TASKS = {task.kind: task for task in (*SERVED.values(), Regression(), MultiLabel(labels=LABELS))}
EVERY = [(family, kind) for family in FAMILIES for kind in ("encoder", "pretrained", *TASKS)]
# An export takes seconds. MASKWRIGHT_EVERY_EXPORT=1 tests all of them, in minutes.
CASES = (
    EVERY
    if os.environ.get("MASKWRIGHT_EVERY_EXPORT")
    else [("electra", "pretrained"), *(("bert", kind) for kind in ("pretrained", *TASKS))]
)


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return pretrained(tmp_path_factory.mktemp("bert") / "tiny", "bert")


def _model(folder, family, kind):
    source = pretrained(folder / "pretrained", family)
    if kind in TASKS:
        build(source, TASKS[kind], seed=5).save(folder / "tuned")
        return folder / "tuned"
    return source


@pytest.mark.slow
@pytest.mark.parametrize(("family", "kind"), CASES)
def test_onnx_gives_the_results_of_the_source(family, kind, tmp_path, monkeypatch):
    pytest.importorskip("onnxscript")
    onnxruntime = pytest.importorskip("onnxruntime")
    monkeypatch.setattr(export, "LIMITS", {"fp32": (1e-4, 1.0), "fp16": (1e-2, 0.8), "int8": (1.0, 0.5)})
    if kind in TASKS:
        monkeypatch.setattr(onnx_graph, "EXTERNAL_DATA_BYTES", 1)
    out = tmp_path / "out"
    model = _model(tmp_path, family, kind)
    parities = maskwright.export(
        model, to="onnx", out=out, precision=["fp32", "fp16", "int8"], encoder=kind == "encoder"
    )
    assert [each.precision for each in parities] == ["fp32", "fp16", "int8"]
    fp32, fp16, int8 = parities
    assert 0 < fp32.difference < 1e-4 * max(1, fp32.peak) < int8.difference
    assert fp32.difference < fp16.difference < int8.difference
    assert fp32.texts == 8
    names = {"model.onnx", "model_fp16.onnx", "model_quantized.onnx"}
    files = {path.name for path in (out / "onnx").iterdir()}
    assert files == (names | {f"{name}_data" for name in names} if kind in TASKS else names)
    session = onnxruntime.InferenceSession(out / "onnx" / "model.onnx")
    dims = ["batch_size", *(["num_choices"] if kind == "multiple_choice" else []), "sequence_length"]
    assert all(each.shape == dims for each in session.get_inputs())
    head = "encoder" if kind == "encoder" else onnx_graph.head_of(read_checkpoint(model))
    assert tuple(each.name for each in session.get_outputs()) == onnx_graph.HEADS[head].outputs
    (architecture,) = read_json(out / "config.json")["architectures"]
    assert (out / "tokenizer.json").is_file()
    assert "pipeline_tag" in _front_matter(out)
    # The class that config.json names gives the same scores, in another shape than that of the check.
    import torch
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    inputs = dict(tokenizer(list(TEXTS[:3]), padding=True, truncation=True, max_length=24, return_tensors="pt"))
    if kind == "multiple_choice":
        inputs = {name: values[None] for name, values in inputs.items()}
    with quiet(), torch.inference_mode():
        theirs = getattr(transformers, architecture).from_pretrained(model).eval()(**inputs)
    ours = session.run(None, {each.name: inputs[each.name].numpy() for each in session.get_inputs()})
    real = inputs["attention_mask"].bool().numpy() if ours[0].shape[:2] == inputs["input_ids"].shape else ...
    for name, scores in zip(onnx_graph.HEADS[head].outputs, ours, strict=True):
        np.testing.assert_allclose(scores[real], theirs[name].numpy()[real], atol=1e-4 * fp32.peak)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "precisions"),
    [
        *((kind, ("fp32", "fp16")) for kind in ("pretrained", "encoder", "embedding", "question_answering")),
        ("pretrained", ("fp16", "int8")),
    ],
)
def test_openvino_gives_the_results_of_the_source(kind, precisions, tmp_path, monkeypatch):
    openvino = pytest.importorskip("openvino")
    pytest.importorskip("nncf" if "int8" in precisions else "onnxscript")
    # On CPUs with bf16 the fp32 graph is near enough only because it is computed in fp32.
    monkeypatch.setattr(export, "LIMITS", {"fp32": (1e-4, 1.0), "fp16": (1e-2, 0.8), "int8": (1.0, 0.5)})
    model = _model(tmp_path, "bert", kind)
    if kind == "question_answering":
        monkeypatch.setattr(onnx_graph, "EXTERNAL_DATA_BYTES", 1)
    if kind == "embedding":
        modules = SentenceModules(pooling="mean", normalize=True)
        hidden_size = read_checkpoint(model).config.hidden_size
        write_sentence_modules(model, modules, hidden_size=hidden_size, max_length=9)
    out = tmp_path / "out"
    parities = maskwright.export(model, to="openvino", out=out, precision=precisions, encoder=kind == "encoder")
    assert tuple(each.precision for each in parities) == precisions
    assert 0 < parities[0].difference < parities[1].difference
    names = {path.name for path in (out / "openvino").iterdir()}
    stems = {"fp32": "openvino_model", "fp16": "openvino_model_fp16", "int8": "openvino_model_qint8_quantized"}
    assert names == {f"{stems[each]}.{suffix}" for each in precisions for suffix in ("xml", "bin")}
    graph = openvino.Core().read_model(out / "openvino" / f"{stems[precisions[-1]]}.xml")
    constants = [operation for operation in graph.get_ops() if operation.get_type_name() == "Constant"]
    types = {each.get_element_type().to_string() for each in constants}
    assert {"fp16": "f16", "int8": "i8"}[precisions[-1]] in types
    assert _front_matter(out)["library_name"] == "openvino"


@pytest.mark.slow
@pytest.mark.parametrize("family", ["bert"] if len(CASES) < len(EVERY) else FAMILIES)
@pytest.mark.parametrize(("pooling", "normalize"), [("mean", False), ("first", True)])
def test_sentence_transformers_gives_the_vectors_of_embed(family, pooling, normalize, tmp_path):
    SentenceTransformer = _sentence_transformer()
    source, out = pretrained(tmp_path / "source", family), tmp_path / "out"
    (parity,) = maskwright.export(source, to="sentence-transformers", out=out, pooling=pooling, normalize=normalize)
    assert parity.difference < 1e-4
    texts = [*TEXTS, "special tokens [SEP] <s> are text", "long " * 50]
    with pytest.warns(UserWarning, match="1 of 6 texts have more than"):
        ours = maskwright.embed(source, texts, pooling=pooling, normalize=normalize, device="cpu")
    theirs = SentenceTransformer(str(out), device="cpu").encode(texts)
    np.testing.assert_allclose(theirs, ours, atol=1e-4)
    modules = [each["path"] for each in read_json(out / "modules.json")]
    assert modules == ["", "1_Pooling", *(["2_Normalize"] if normalize else [])]
    assert _front_matter(out)["pipeline_tag"] == "sentence-similarity"


def _sentence_transformer():
    with warnings.catch_warnings(action="ignore"):
        return pytest.importorskip("sentence_transformers").SentenceTransformer


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


MODULE = "sentence_transformers.models."


def _sentence_folder(source, folder, pooling=None, names=("Transformer", "Pooling"), **files):
    """Copy a model into a folder of sentence-transformers as versions before 6 wrote them."""
    shutil.copytree(source, folder)
    paths = ["", *(f"{number}_{name}" for number, name in enumerate(names[1:], 1))]
    modules = [{"idx": n, "name": str(n), "path": paths[n], "type": MODULE + name} for n, name in enumerate(names)]
    write_json(folder / "modules.json", modules)
    write_json(_made(folder / "1_Pooling") / "config.json", {"word_embedding_dimension": 32, **(pooling or {})})
    if "Normalize" in names:
        _made(folder / "2_Normalize")
    for name, content in files.items():
        write_json(folder / f"{name}.json", content)
    return folder


@pytest.mark.parametrize(
    ("pooling", "names"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, ("Transformer", "Pooling", "Normalize")),
        ({"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}, ("Transformer", "Pooling")),
    ],
)
def test_embed_and_a_hub_export_compute_what_the_modules_say(pooling, names, bert, tmp_path):
    SentenceTransformer = _sentence_transformer()
    folder = _sentence_folder(bert, tmp_path / "model", pooling, names, sentence_bert_config={"max_seq_length": 10})
    (folder / "README.md").write_text("---\ntags:\n- x\n---\n\n# mine\n\n## Scores\n\nGood.\n", encoding="utf-8")
    theirs = SentenceTransformer(str(folder), device="cpu").encode(list(TEXTS), show_progress_bar=False)
    with pytest.warns(UserWarning, match="more than 10 tokens"):
        ours = maskwright.embed(folder, TEXTS, device="cpu")
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    assert build(folder, Regression(), seed=1).max_length == 10  # also as the base of another task
    out = tmp_path / "out"
    maskwright.export(folder, to="hub", out=out)
    again = SentenceTransformer(str(out), device="cpu").encode(list(TEXTS), show_progress_bar=False)
    np.testing.assert_array_equal(again, theirs)
    front = _front_matter(out)
    assert (front["library_name"], front["pipeline_tag"]) == ("sentence-transformers", "sentence-similarity")
    card = (out / "README.md").read_text(encoding="utf-8")
    assert "## Scores\n\nGood.\n\n## Limits" in card
    assert 'SentenceTransformer("out")' in card
    assert "AutoModel" not in card
    # An export of the export repeats nothing.
    maskwright.export(out, to="hub", out=tmp_path / "second")
    assert (tmp_path / "second" / "README.md").read_text(encoding="utf-8").count("## Limits") == 1


@pytest.mark.parametrize("pooling", [None, "first"])
def test_embed_and_exports_keep_the_dimensions_of_truncate_dim(pooling, bert, tmp_path):
    SentenceTransformer = _sentence_transformer()
    names = ("Transformer", "Pooling", "Normalize")
    mean = {"pooling_mode_mean_tokens": True}
    config = {"truncate_dim": 5}
    folder = _sentence_folder(bert, tmp_path / "model", mean, names, config_sentence_transformers=config)
    ours = maskwright.embed(folder, TEXTS, device="cpu", pooling=pooling)
    maskwright.export(folder, to="sentence-transformers", out=tmp_path / "out", pooling=pooling)
    for each in (tmp_path / "out", *([folder] if pooling is None else [])):
        theirs = SentenceTransformer(str(each), device="cpu").encode(list(TEXTS), show_progress_bar=False)
        assert theirs.shape == (len(TEXTS), 5)
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
    whole = maskwright.embed(folder, TEXTS, device="cpu", pooling=pooling, dimensions=32)
    assert whole.shape == (len(TEXTS), 32)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"pooling": {"pooling_mode": "max"}}, "the pooling max"),
        ({"pooling": {"pooling_mode_cls_token": True, "pooling_mode_max_tokens": True}}, "the pooling cls, max"),
        ({"names": ("Transformer", "Pooling", "Dense", "Dense")}, "the modules Transformer, Pooling, Dense, Dense"),
        (
            {"config_sentence_transformers": {"prompts": {"query": "query: "}, "default_prompt_name": "query"}},
            "the default prompt 'query: '",
        ),
        ({"sentence_bert_config": {"do_lower_case": True}}, "do_lower_case"),
        ({"config_sentence_transformers": []}, "is no folder of sentence-transformers"),
    ],
)
def test_modules_that_are_not_computed_are_refused(changes, problem, bert, tmp_path):
    folder = _sentence_folder(bert, tmp_path / "model", **changes)
    with pytest.raises(ConversionError, match=problem):
        maskwright.embed(folder, "a", device="cpu")
    if changes != {"config_sentence_transformers": []}:
        plain = maskwright.embed(bert, "a", device="cpu", pooling="mean")
        np.testing.assert_array_equal(maskwright.embed(folder, "a", device="cpu", pooling="mean"), plain)


@pytest.mark.parametrize("damage", ["truncated", "another weight", "no weights"])
def test_every_use_of_a_folder_names_its_damaged_dense_module(damage, bert, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(bert, folder)
    hidden_size = read_checkpoint(bert).config.hidden_size
    dense = torch.nn.Linear(hidden_size, 24)
    write_sentence_modules(folder, SentenceModules(dense=dense), hidden_size=hidden_size, max_length=9)
    file = folder / "2_Dense" / "model.safetensors"
    weights = {f"linear.{name}": each for name, each in dense.state_dict().items()} if damage != "no weights" else {}
    write_tensors(file, {**weights, "other": torch.zeros(1)})
    if damage == "truncated":
        file.write_bytes(file.read_bytes()[:200])
    uses = [
        lambda: maskwright.embed(folder, "a", device="cpu"),
        lambda: build(folder, Regression(), seed=1),
        lambda: maskwright.export(folder, to="hub", out=tmp_path / "out"),
    ]
    for use in uses:
        with pytest.raises(ConversionError, match=r"download|Download"):
            use()


def test_export_that_differs_from_its_source_leaves_nothing(bert, tmp_path, monkeypatch):
    pytest.importorskip("sentence_transformers")
    monkeypatch.setattr(export, "LIMITS", {"fp32": (0.0, 1.0)})
    with pytest.raises(ConversionError, match="differs from its source"):
        maskwright.export(bert, to="sentence-transformers", out=tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_check_bounds_difference_and_agreement():
    limits = {"fp32": (1e-4, 0.999), "int8": (1.0, 0.9)}
    facts = {"precision": "fp32", "texts": 100, "difference": 1e-6, "peak": 10.0, "agreement": 1.0}
    exact = Parity(**facts, measure="same class", milliseconds=1.0, source_milliseconds=1.0)
    exact.check(limits)
    replace(exact, precision="int8", texts=8, agreement=7 / 8).check(limits)  # One of few texts may differ.
    for worse in (
        {"difference": 1.1e-3},
        {"difference": np.nan},
        {"agreement": 0.98},
        {"precision": "int8", "agreement": 0.89},
        {"precision": "int8", "texts": 8, "agreement": 6 / 8},
    ):
        with pytest.raises(ConversionError, match="Allowed: a difference of up to"):
            replace(exact, **worse).check(limits)


def test_a_precision_that_passes_is_kept_when_another_fails(tmp_path):
    facts = {"texts": 100, "peak": 10.0, "measure": "same class", "milliseconds": 1.0, "source_milliseconds": 1.0}
    good = Parity(precision="fp32", difference=1e-6, agreement=1.0, **facts)
    bad = Parity(precision="int8", difference=1.0, agreement=0.5, **facts)
    for name in ("model.onnx", "model.onnx_data", "model_quantized.onnx", "model_quantized.onnx_data"):
        (tmp_path / name).touch()
    files = {"fp32": tmp_path / "model.onnx", "int8": tmp_path / "model_quantized.onnx"}
    with pytest.warns(export.PrecisionLeftOut, match=r"50\.00%"):
        assert export._passing([good, bad], files) == [good]
    assert {path.name for path in tmp_path.iterdir()} == {"model.onnx", "model.onnx_data"}
    with pytest.raises(ConversionError, match=r"50\.00%"):
        export._passing([bad], files)


def test_an_export_keeps_license_tags_and_base_model_of_its_source(bert, tmp_path):
    shutil.copytree(bert, tmp_path / "source")
    (tmp_path / "source" / "README.md").write_text(
        "---\nlicense: apache-2.0\nlanguage:\n- en\n- de\ntags:\n- legal\nbase_model: org/base\n---\n# Old\n"
    )
    maskwright.export(tmp_path / "source", to="hub", out=tmp_path / "out")
    front = _front_matter(tmp_path / "out")
    assert (front["license"], front["language"], front["base_model"]) == ("apache-2.0", ["en", "de"], "org/base")
    assert front["tags"] == ["maskwright", "bert", "legal"]


@pytest.mark.slow
@pytest.mark.parametrize(("pooling", "normalize"), [("mean", True), ("first", False)])
def test_onnx_of_a_sentence_folder_pools_normalizes_and_has_its_length(pooling, normalize, bert, tmp_path):
    pytest.importorskip("onnxscript")
    onnxruntime = pytest.importorskip("onnxruntime")
    shutil.copytree(bert, tmp_path / "source")
    hidden_size = read_checkpoint(bert).config.hidden_size
    dense = torch.nn.Linear(hidden_size, 24) if normalize else None
    size = 7 if normalize else None
    modules = SentenceModules(pooling=pooling, normalize=normalize, dense=dense, truncate_dim=size)
    write_sentence_modules(tmp_path / "source", modules, hidden_size=hidden_size, max_length=9)
    if not normalize:  # A tokenizer without segments, beside an encoder with them.
        path = tmp_path / "source" / "tokenizer_config.json"
        write_json(path, {**read_json(path), "model_input_names": ["input_ids", "attention_mask"]})
    maskwright.export(tmp_path / "source", to="onnx", out=tmp_path / "out")
    assert read_json(tmp_path / "out" / "tokenizer_config.json")["model_max_length"] == 9
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    inputs = tokenizer(list(TEXTS[:3]), padding=True, truncation=True, return_tensors="np")
    session = onnxruntime.InferenceSession(tmp_path / "out" / "onnx" / "model.onnx")
    names = [each.name for each in session.get_inputs()]
    (vectors,) = session.run(["sentence_embedding"], {name: inputs[name].astype(np.int64) for name in names})
    with warnings.catch_warnings(action="ignore"):
        expected = maskwright.embed(tmp_path / "source", list(TEXTS[:3]), device="cpu")
    np.testing.assert_allclose(vectors, expected, atol=1e-4)


def _front_matter(folder):
    _, front, _ = (folder / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    return yaml.safe_load(front)


def _run(folder, bert):
    """Make a run directory of a model: the files that describe how it was trained."""
    for path in bert.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    recipe = maskwright.recipes.show("bert/tiny").model_dump(mode="json")
    write_json(folder / "recipe.json", recipe)
    counts = {"documents": 12, "sentences": 340, "characters": 5600}
    source = {"name": "private/reviews.jsonl", "kept": counts, "examples": ["A private review."]}
    total = {"kept": counts, "scripts": {"Latin": 1.0}}
    write_json(folder / "data_card.json", {"fingerprint": "f00d", "sources": [source], "total": total})
    held_out = {"mlm": {"loss": 2.5, "accuracy": 0.456, "count": 99, "details": {}}}
    result = {"steps": 7, "tokens": 12345, "epochs": 1.5, "flops": 1e9, "held_out": held_out, "baseline": None}
    request = {"recipe": recipe, "budget": {"seconds": 60.0}, "seed": 3}
    write_json(folder / "run.json", {"request": request, "result": result, "begun_with": None})
    return folder


def test_hub_folder_loads_and_its_card_states_data_training_and_scores(bert, tmp_path):
    run = _run(_made(tmp_path / "run"), bert)
    out = tmp_path / "out"
    assert maskwright.export(run, to="hub", out=out, license="apache-2.0", language="en") == []
    assert _front_matter(out) == {
        "license": "apache-2.0",
        "language": "en",
        "library_name": "transformers",
        "pipeline_tag": "fill-mask",
        "tags": ["maskwright", "bert"],
    }
    card = (out / "README.md").read_text(encoding="utf-8")
    facts = ("reviews.jsonl | 12 | 340 | 5,600", "`bert/tiny`", "seed 3", "60 seconds; 7 steps; 12.3k tokens", "45.6 %")
    assert all(fact in card for fact in facts)
    # Neither quotations of the corpus nor local paths are published.
    assert "private" not in "".join(path.read_text(errors="ignore") for path in out.rglob("*") if path.is_file())
    assert not {"run.json", "data_card.json"} & {path.name for path in out.iterdir()}
    mask = maskwright.fill_mask(out, "The cat [MASK] on the mat.", device="cpu")
    assert mask == maskwright.fill_mask(run, "The cat [MASK] on the mat.", device="cpu")


@pytest.mark.parametrize(("recipe", "is_named"), [("electra/tiny", True), ("bert/tiny", False)])
def test_the_score_of_a_generator_is_not_credited_to_the_model(recipe, is_named, bert, tmp_path):
    run = _run(_made(tmp_path / "run"), bert)
    record, shown = read_json(run / "run.json"), maskwright.recipes.show(recipe).model_dump(mode="json")
    write_json(run / "run.json", {**record, "request": {**record["request"], "recipe": shown}})
    maskwright.export(run, to="hub", out=tmp_path / "out")
    assert ("(generator)" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")) is is_named


def test_card_names_lexicons_and_the_teacher_without_their_folders(bert, tmp_path):
    run = _run(_made(tmp_path / "run"), bert)
    words = ["words.segmenter=rjieba", "words.dictionary=/private/known.txt", 'words.phrases=["/private/terms.tsv"]']
    recipe = maskwright.recipes.show("distilbert/tiny", set=[*words, "teacher.model=/private/large"])
    write_json(run / "recipe.json", recipe.model_dump(mode="json"))
    maskwright.export(run, to="hub", out=tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "private" not in card
    for name in ("dictionary: known.txt", "phrases: terms.tsv", "teacher: large"):
        assert name in card


@pytest.mark.parametrize("kind", TASKS)
def test_card_of_a_fine_tuned_model_has_the_pipeline_of_its_task(kind, bert, tmp_path):
    build(bert, TASKS[kind], seed=5).save(tmp_path / "tuned")
    (tmp_path / "tuned" / "README.md").write_text(
        "---\nlanguage: zh\ntags:\n- x\n---\n\n# mine\n\n## Scores\n\nGood.\n"
    )
    maskwright.export(tmp_path / "tuned", to="hub", out=tmp_path / "out", license="mit")
    front = _front_matter(tmp_path / "out")
    assert front["pipeline_tag"] == {
        "tagging": "token-classification",
        "question_answering": "question-answering",
        "multiple_choice": "multiple-choice",
    }.get(kind, "text-classification")
    assert (front["license"], front["language"]) == ("mit", "zh")
    written = (tmp_path / "out" / "README.md").read_text()
    assert "## Scores\n\nGood.\n\n## Limits" in written
    assert (tmp_path / "out" / "task.json").is_file()


def test_texts_of_the_check_are_those_of_the_file_or_the_run(bert, tmp_path):
    run = _run(_made(tmp_path / "run"), bert)
    assert texts_for(run, None)[0] == "A private review."
    assert texts_for(bert, None) == texts_for(run, None)[1:]
    (tmp_path / "texts.txt").write_text("one\n\ntwo\n")
    assert texts_for(run, tmp_path / "texts.txt") == ["one", "two"]
    (tmp_path / "questions.jsonl").write_text(json.dumps({"question": "Who?", "context": "Anna is here."}) + "\n")
    (example,) = examples_for(build(bert, QuestionAnswering(), seed=0), tmp_path / "questions.jsonl")
    assert (example.question, example.context) == ("Who?", "Anna is here.")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"to": "hub", "precision": "int8"}, "--precision has no effect with --to hub"),
        ({"to": "sentence-transformers", "encoder": True}, "--encoder has no effect"),
        ({"to": "onnx", "normalize": True}, "--pooling and --normalize have no effect"),
        ({"to": "hub", "texts": "file.txt"}, "--texts has no effect"),
        ({"to": "onnx", "texts": "missing.txt"}, "cannot read missing.txt"),
        ({"to": "onnx", "precision": ["fp32", "int4"]}, "unknown precision 'int4'"),
        ({"to": "onyx"}, "Did you mean 'onnx'"),
        ({"to": "hub", "out": "."}, "exists"),
    ],
)
def test_choices_without_effect_are_refused(bert, tmp_path, arguments, problem):
    if "texts" in arguments and arguments["to"] == "onnx":
        pytest.importorskip("onnxscript")
    with pytest.raises(MaskwrightError, match=problem):
        maskwright.export(bert, **{"out": tmp_path / "out", **arguments})


def test_missing_library_is_named_with_its_extra(bert, tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MaskwrightError, match=r"--to onnx needs onnx, .*`pip install \"maskwright\[onnx\]\"`"):
        maskwright.export(bert, to="onnx", out=tmp_path / "out")


def test_only_int8_of_openvino_needs_nncf(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "nncf" else object())
    others = {"encoder": False, "pooled": False, "texts": None}
    export._check_choices("openvino", ("fp32", "fp16"), **others)
    with pytest.raises(MaskwrightError, match=r"int8 needs nncf, .*`pip install \"maskwright\[openvino-int8\]\"`"):
        export._check_choices("openvino", ("fp32", "int8"), **others)
