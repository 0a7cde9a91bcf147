"""Replaced tokens are found as transformers finds them; an ELECTRA run fills masks with its generator."""

import shutil
from pathlib import Path

import pytest
import torch

from maskwright.core.errors import ConversionError, MaskwrightError
from maskwright.inference.batches import BATCH_TOKENS
from maskwright.inference.detect import Detection, TokenPrediction, highlight, summary
from maskwright.inference.long_texts import TruncationWarning
from maskwright.inference.model import Model, load

TEXTS = ["the cat sat on the mat.", "", "We love, the dog ran to a tree 我爱北京", "xyz cats"]


@pytest.fixture(scope="module")
def electra(electra_folder: Path) -> Model:
    return load(electra_folder, device="cpu")


def test_detect_equals_transformers(electra: Model, electra_folder: Path) -> None:
    from transformers import ElectraForPreTraining

    theirs = ElectraForPreTraining.from_pretrained(electra_folder).eval()
    for detection in electra.detect(TEXTS):
        ids = [2, *(token.token_id for token in detection.tokens), 3]
        with torch.no_grad():
            expected = torch.sigmoid(theirs(torch.tensor([ids])).logits)[0, 1:-1].tolist()
        assert [token.probability for token in detection.tokens] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("batch_tokens", [1, 20, 8192])
def test_detect_keeps_the_order_of_the_texts(electra, batch_tokens, monkeypatch):
    monkeypatch.setitem(BATCH_TOKENS, "cpu", batch_tokens)
    together = electra.detect(TEXTS)
    assert [detection.text for detection in together] == TEXTS
    for text, detection in zip(TEXTS, together, strict=True):
        (alone,) = electra.detect(text)
        assert [token.token for token in detection.tokens] == [token.token for token in alone.tokens]
        assert [token.probability for token in detection.tokens] == pytest.approx(
            [token.probability for token in alone.tokens], abs=1e-6
        )


def test_detected_tokens_know_their_characters(electra: Model) -> None:
    (detection,) = electra.detect("The cats, 我爱")
    words = [detection.text[token.start : token.end] for token in detection.tokens]
    assert words == ["The", "cats", ",", "我", "爱"]
    assert [token.token for token in detection.tokens][:2] == ["the", "cats"]


def test_threshold_selects_the_detected_tokens(electra: Model) -> None:
    (all_of_them,), (none,) = electra.detect(TEXTS[0], threshold=0), electra.detect(TEXTS[0], threshold=1)
    assert all_of_them.replaced == all_of_them.tokens
    assert none.replaced == ()
    middle = sorted(token.probability for token in none.tokens)[3]
    (some,) = electra.detect(TEXTS[0], threshold=middle)
    assert len(some.replaced) == len(some.tokens) - 3
    with pytest.raises(MaskwrightError, match=r"the threshold is 1.5.*from 0 to 1"):
        electra.detect(TEXTS, threshold=1.5)


def test_a_long_text_is_read_from_its_beginning(electra: Model) -> None:
    with pytest.warns(TruncationWarning, match="the text has more than 40 tokens"):
        (detection,) = electra.detect("cat " * 60)
    assert len(detection.tokens) == 38


def test_a_model_without_the_head_is_an_error(bert_folder: Path) -> None:
    with pytest.raises(ConversionError, match=r"no head for replaced tokens.*a run of an electra recipe"):
        load(bert_folder).detect("the cat")


def test_masks_are_filled_by_the_generator_beside_it(electra: Model, electra_folder: Path) -> None:
    alone = load(electra_folder / "generator")
    assert "mlm" not in electra.heads
    assert electra.fill_mask("the [MASK] sat") == alone.fill_mask("the [MASK] sat")
    assert electra.generator.name == str(electra_folder / "generator")
    assert electra.embed("cat").shape == (1, 32)


def test_a_discriminator_alone_fills_no_masks(electra_folder: Path, tmp_path: Path) -> None:
    for path in electra_folder.iterdir():
        if path.is_file():
            shutil.copy(path, tmp_path)
    alone = load(tmp_path)
    assert alone.generator is None
    assert alone.detect("the cat") == load(electra_folder).detect("the cat")
    with pytest.raises(ConversionError, match="Use `embed` or `detect`"):
        alone.fill_mask("the [MASK]")


def detection_of(text: str, *spans: tuple[int, int, float]) -> Detection:
    return Detection(text, tuple(TokenPrediction(text[a:b], 0, a, b, share, share >= 0.5) for a, b, share in spans))


def test_marked_texts_are_readable_without_colors() -> None:
    detection = detection_of("The chef ate the meal.", (0, 3, 0.1), (3, 8, 0.2), (8, 12, 0.971), (12, 16, 0.0))
    assert highlight(detection).plain == "The chef ate{97%} the meal."
    assert [span.style for span in highlight(detection).spans] == ["bold white on red", "red"]
    assert highlight(detection_of("no, none", (0, 2, 0.4))).plain == "no, none"
    # Two tokens of one character: the second one has nothing left to color.
    assert highlight(detection_of("字", (0, 1, 0.6), (0, 1, 0.7))).plain == "字{60%}{70%}"


def test_summary_counts() -> None:
    one = detection_of("a b", (0, 1, 0.9), (2, 3, 0.1))
    assert summary([one]) == "1 of 2 tokens looks replaced"
    assert summary([one, one]) == "2 of 4 tokens look replaced"
    assert summary([detection_of("a", (0, 1, 0.1))]) == "0 of 1 token look replaced"
