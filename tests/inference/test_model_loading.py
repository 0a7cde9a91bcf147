"""`maskwright.load`: the requested precision or a warning why it is not used; the tokenizer fits the weights."""

import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import maskwright
from maskwright.core.errors import ConversionError, DataError, DeviceError, MaskwrightError
from maskwright.inference import precision
from maskwright.inference.precision import PrecisionWarning, choose_precision
from tests.precisions import skip_without

CPU, GPU = torch.device("cpu"), torch.device("cuda")
TEXTS = ["the cat sat on the mat.", "", "we love the dogs, and a tree ran", "我爱北京"]
MASKED = ["the cat sat on the [MASK].", "[MASK] and the <mask> ran to a tree", "我[MASK]北京"]


def _only(monkeypatch: pytest.MonkeyPatch, *, bf16: bool = False, int8: bool = False) -> None:
    monkeypatch.setattr(precision, "multiplies_bf16", lambda _: bf16)
    problem = None if int8 else DeviceError("this processor lacks instructions")
    monkeypatch.setattr(precision.ops, "int8_problem", lambda: problem)


def test_a_processor_computes_exactly_by_itself_and_a_gpu_in_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    _only(monkeypatch, bf16=True, int8=True)
    chosen = [choose_precision(name, CPU) for name in ("auto", "fp32", "bf16", "int8")]
    assert chosen == ["fp32", "fp32", "bf16", "int8"]
    assert [choose_precision(name, GPU) for name in ("auto", "fp32")] == ["bf16", "fp32"]
    _only(monkeypatch)
    assert choose_precision("auto", GPU) == "fp32"


@pytest.mark.parametrize(
    ("name", "device", "why"),
    [
        ("bf16", CPU, "fp32: cpu has no bf16 instructions"),
        ("bf16", GPU, "fp32: cuda has no bf16 instructions"),
        ("int8", CPU, "fp32: this processor lacks instructions"),
        ("int8", GPU, "fp32: int8 is for CPUs, and the model is on cuda"),
    ],
)
def test_a_precision_that_the_device_lacks_is_a_warning_of_one_line(name, device, why, monkeypatch):
    _only(monkeypatch)
    with pytest.warns(PrecisionWarning, match=why) as caught:
        assert choose_precision(name, device) == "fp32"
    assert len(caught) == 1
    assert "\n" not in str(caught[0].message)


def test_a_misspelt_precision_names_the_nearest(bert_folder: Path) -> None:
    with pytest.raises(MaskwrightError, match=r"unknown precision 'bf6'.*auto, bf16, fp32, int8.*Did you mean 'bf16'"):
        maskwright.load(bert_folder, precision="bf6")


@pytest.mark.parametrize(("requested", "error", "cosine"), [("bf16", 0.02, 0.9998), ("int8", 0.05, 0.998)])
@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_rounded_models_stay_near_the_exact_one(family, requested, error, cosine, request):
    skip_without(requested)
    folder = request.getfixturevalue(f"{family}_folder")
    exact, rounded = (maskwright.load(folder, device="cpu", precision=each) for each in ("fp32", requested))
    assert rounded.precision == requested
    for pooling in ("mean", "first"):
        vectors, near = exact.embed(TEXTS, pooling=pooling), rounded.embed(TEXTS, pooling=pooling)
        assert not np.array_equal(vectors, near)
        lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(near, axis=1)
        assert ((vectors * near).sum(1) / lengths).min() >= cosine
    for wanted, actual in zip(exact.fill_mask(MASKED), rounded.fill_mask(MASKED), strict=True):
        for best, guess in zip(wanted, actual, strict=True):
            assert guess[0].token_id == best[0].token_id
            assert [token.score for token in guess] == pytest.approx([token.score for token in best], abs=error)


def test_a_generator_computes_in_the_precision_of_its_model(electra_folder: Path) -> None:
    with warnings.catch_warnings(action="ignore", category=PrecisionWarning):
        model = maskwright.load(electra_folder, device="cpu", precision="int8")
    assert model.generator.precision == model.precision
    exact = maskwright.load(electra_folder, device="cpu").detect(TEXTS[0])[0].tokens
    for actual, wanted in zip(model.detect(TEXTS[0])[0].tokens, exact, strict=True):
        assert actual.probability == pytest.approx(wanted.probability, abs=0.05)


@pytest.fixture
def folder(bert_folder: Path, tmp_path: Path) -> Path:
    """A copy of a model folder."""
    shutil.copytree(bert_folder, tmp_path / "copy")
    return tmp_path / "copy"


def test_a_model_is_loaded_by_its_folder(folder: Path) -> None:
    model = maskwright.load(str(folder), device="cpu")
    assert isinstance(model, maskwright.Model)
    assert (model.name, model.max_length, model.precision) == (str(folder), 40, "fp32")


def test_tokenizers_that_do_not_fit_are_refused(folder: Path) -> None:
    vocabulary = folder / "vocab.txt"
    pieces = vocabulary.read_text(encoding="utf-8")
    vocabulary.write_text(pieces + "stranger\n", encoding="utf-8")
    with pytest.raises(ConversionError, match=r"has 41 entries.*embeddings for 40"):
        maskwright.load(folder)
    vocabulary.write_text(pieces.replace("[MASK]\n", "[HIDDEN]\n"), encoding="utf-8")
    with pytest.raises(DataError, match="no mask token"):
        maskwright.load(folder)
    vocabulary.unlink()
    with pytest.raises(DataError, match="no tokenizer"):
        maskwright.load(folder)
