"""What is asked for is what is computed in, or it is said, once, that it is not."""

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import maskwright
from maskwright.core.errors import MaskwrightError
from maskwright.inference import mlm_scores, precision
from maskwright.inference.precision import PrecisionChanged, choose_precision
from maskwright.model import states
from maskwright.model.states import PlainEncoder
from tests.precisions import skip_without

CPU, GPU = torch.device("cpu"), torch.device("cuda")
TEXTS = ["the cat sat on the mat.", "", "we love the dogs, and a tree ran", "我爱北京"]
MASKED = ["the cat sat on the [MASK].", "[MASK] and the <mask> ran to a tree", "我[MASK]北京"]


def _only(monkeypatch: pytest.MonkeyPatch, *, bf16: bool = False, int8: bool = False) -> None:
    monkeypatch.setattr(precision, "multiplies_bf16", lambda _: bf16)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_vnni": int8})


def test_a_processor_computes_exactly_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    _only(monkeypatch, bf16=True, int8=True)
    assert choose_precision("auto", CPU) == "fp32"
    assert choose_precision("fp32", CPU) == "fp32"
    assert choose_precision("bf16", CPU) == "bf16"
    assert choose_precision("int8", CPU) == "int8"


def test_a_gpu_takes_bf16_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    _only(monkeypatch, bf16=True)
    assert choose_precision("auto", GPU) == "bf16"
    assert choose_precision("fp32", GPU) == "fp32"
    _only(monkeypatch)
    assert choose_precision("auto", GPU) == "fp32"


@pytest.mark.parametrize(
    ("name", "device", "why"),
    [
        ("bf16", CPU, "fp32: cpu does not multiply bf16 numbers by itself"),
        ("bf16", GPU, "fp32: cuda does not multiply bf16 numbers by itself"),
        ("int8", CPU, "fp32: this processor has no instructions for products of 8-bit numbers"),
        ("int8", GPU, "fp32: int8 is for processors, and the model is on cuda"),
    ],
)
def test_what_a_device_lacks_is_said_in_a_line(
    name: str, device: torch.device, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _only(monkeypatch)
    with pytest.warns(PrecisionChanged, match=why) as said:
        assert choose_precision(name, device) == "fp32"
    assert len(said) == 1
    assert "\n" not in str(said[0].message)


def test_a_misspelt_precision_names_the_nearest(bert_folder: Path) -> None:
    with pytest.raises(MaskwrightError, match=r"unknown precision 'bf6'.*auto, bf16, fp32, int8.*Did you mean 'bf16'"):
        maskwright.load(bert_folder, precision="bf6")  # type: ignore[arg-type]


def test_a_model_without_the_instructions_computes_as_in_fp32(
    bert_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = maskwright.load(bert_folder, device="cpu")
    _only(monkeypatch)
    with pytest.warns(PrecisionChanged):
        model = maskwright.load(bert_folder, device="cpu", precision="int8")
    assert model.precision == "fp32"
    np.testing.assert_array_equal(model.embed(TEXTS), exact.embed(TEXTS))


@pytest.mark.parametrize(("asked", "error", "cosine"), [("bf16", 0.02, 0.9998), ("int8", 0.05, 0.998)])
@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_rounded_models_stay_near_the_exact_one(
    family: str, asked: precision.ProductPrecision, error: float, cosine: float, request: pytest.FixtureRequest
) -> None:
    skip_without(asked)
    folder = request.getfixturevalue(f"{family}_folder")
    exact, rounded = (maskwright.load(folder, device="cpu", precision=each) for each in ("fp32", asked))
    assert rounded.precision == asked
    for pooling in ("mean", "first"):
        vectors, near = exact.embed(TEXTS, pooling=pooling), rounded.embed(TEXTS, pooling=pooling)
        assert not np.array_equal(vectors, near)
        lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(near, axis=1)
        assert ((vectors * near).sum(1) / lengths).min() >= cosine
    for wanted, found in zip(exact.fill_mask(MASKED), rounded.fill_mask(MASKED), strict=True):
        for best, guess in zip(wanted, found, strict=True):
            assert guess[0].token_id == best[0].token_id
            assert [token.score for token in guess] == pytest.approx([token.score for token in best], abs=error)
    assert rounded.embed(TEXTS).tolist() == rounded.embed(TEXTS).tolist()


def test_a_generator_computes_in_the_precision_of_its_model(electra_folder: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrecisionChanged)
        model = maskwright.load(electra_folder, device="cpu", precision="int8")
    assert model.generator is not None
    assert model.generator.precision == model.precision
    exact = maskwright.load(electra_folder, device="cpu").detect(TEXTS[0])[0].tokens
    for judged, wanted in zip(model.detect(TEXTS[0])[0].tokens, exact, strict=True):
        assert judged.probability == pytest.approx(wanted.probability, abs=0.05)


@pytest.mark.parametrize("asked", ["fp32", "bf16"])
def test_devices_that_nothing_is_laid_out_for_use_the_modules(
    asked: precision.ProductPrecision, bert_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed, plain = (maskwright.load(bert_folder, device="cpu") for _ in range(2))
    assert isinstance(packed._states, PlainEncoder) != states.packs(packed.encoder, "fp32")
    for module in (states, mlm_scores):
        monkeypatch.setattr(module, "packs", lambda *_: False)
    plain.precision = asked
    assert isinstance(plain._states, PlainEncoder)
    tolerance = 1e-5 if asked == "fp32" else 0.05
    np.testing.assert_allclose(plain.embed(TEXTS), packed.embed(TEXTS), atol=tolerance, rtol=0)
    np.testing.assert_allclose(
        plain.embed(TEXTS, pooling="first"), packed.embed(TEXTS, pooling="first"), atol=tolerance, rtol=0
    )
    for ours, theirs in zip(plain.fill_mask(MASKED), packed.fill_mask(MASKED), strict=True):
        assert [best[0].score for best in ours] == pytest.approx([best[0].score for best in theirs], abs=tolerance)
