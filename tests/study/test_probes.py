"""Probes of a study, against transformers and against values computed by hand."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from maskwright.core.errors import DataError
from maskwright.inference.model import load
from maskwright.study import probes
from maskwright.study.intrinsic import _pair_states, check_text, intrinsic
from maskwright.study.text import StudyText

SENTENCES = ["the cats sat on the mat.", "a dog ran to the tree!", "we love the cat, and the dogs run"]


def _sentence(n: int) -> str:
    return f" the cat{'s' * (n % 2)} sat on {'the' if n % 3 else 'a'} mat and a dog ran to the tree."


DOCUMENTS = tuple(tuple(map(_sentence, range(count))) for count in range(6, 16))
TEXT = StudyText(train=(), held_out="", documents=DOCUMENTS, sources=("one", "two") * 5)


@pytest.fixture(params=["bert_folder", "roberta_folder"])
def folder(request: pytest.FixtureRequest) -> Path:
    path: Path = request.getfixturevalue(request.param)
    return path


def test_pseudo_log_likelihood_equals_transformers_token_by_token(folder: Path) -> None:
    from transformers import AutoModelForMaskedLM

    model = load(folder)
    theirs = AutoModelForMaskedLM.from_pretrained(folder).eval()
    special, expected = model.tokenizer.special_tokens, []
    for sentence in SENTENCES:
        ids = torch.tensor([special.cls, *model.tokenizer.encode(sentence).ids.tolist(), special.sep])
        total = 0.0
        for position in range(1, len(ids) - 1):
            masked = ids.clone()
            masked[position] = special.mask
            with torch.inference_mode():
                scores = theirs(masked[None]).logits[0, position].log_softmax(0)
            total += float(scores[ids[position]])
        expected.append(total)
    np.testing.assert_allclose(probes.pseudo_log_likelihoods(model, SENTENCES), expected, rtol=1e-5)


def test_masked_words_are_scored_per_token_and_per_word(folder: Path) -> None:
    model = load(folder)
    actual = probes.masked_words(model, TEXT)
    ratio = actual["token_loss"].count / actual["word_loss"].count
    assert actual["word_loss"].value == pytest.approx(ratio * actual["token_loss"].value)
    assert actual["word_accuracy"].value <= actual["token_accuracy"].value
    assert len(actual["word_loss"].groups) == probes.GROUPS
    # All models predict the same words.
    assert actual["word_loss"].count == 193


def test_the_generator_is_used_for_a_discriminator(electra_folder: Path) -> None:
    model = load(electra_folder)
    assert model.generator is not None
    of_model, of_generator = probes.masked_words(model, TEXT), probes.masked_words(model.generator, TEXT)
    assert of_model["word_loss"].value == of_generator["word_loss"].value
    assert (of_model["word_loss"].by, of_generator["word_loss"].by) == ("generator", "head")


def test_own_heads_are_used_where_there_are_any(bert_folder: Path, electra_folder: Path, roberta_folder: Path) -> None:
    actual = {path.name: intrinsic(load(path), TEXT) for path in (bert_folder, electra_folder, roberta_folder)}
    by = {name: {task: each.by for task, each in measured.items()} for name, measured in actual.items()}
    everything = dict.fromkeys(("sentence_order", "next_sentence", "replaced_words", "source"), "probe")
    assert by == {
        "tiny-bert": {**everything, "next_sentence": "head"},
        "tiny-electra": {**everything, "replaced_words": "head"},
        "tiny-roberta": everything,
    }
    assert all(0 <= each.value <= 1 for measured in actual.values() for each in measured.values())


def test_a_pair_head_gives_the_scores_of_transformers(bert_folder: Path) -> None:
    from transformers import BertForNextSentencePrediction

    model = load(bert_folder)
    theirs = BertForNextSentencePrediction.from_pretrained(bert_folder).eval()
    first, second = "the cat sat", "a dog ran to the tree"
    special = model.tokenizer.special_tokens
    parts = [model.tokenizer.encode(text).ids.tolist() for text in (first, second)]
    ids = torch.tensor([[special.cls, *parts[0], special.sep, *parts[1], special.sep]])
    segments = torch.tensor([[0] * (len(parts[0]) + 2) + [1] * (len(parts[1]) + 1)])
    with torch.inference_mode():
        expected = theirs(ids, token_type_ids=segments).logits[0].numpy()
    _, pooled = _pair_states(model, [("we love", "run"), (first, second)])
    with torch.inference_mode():
        actual = model.heads["nsp"](pooled[1:]).numpy()
    np.testing.assert_allclose(actual[0], expected, rtol=1e-4, atol=1e-5)


def write_pairs(path: Path, pairs: list[tuple[str, str]]) -> None:
    lines = "".join(json.dumps({"sentence_good": good, "sentence_bad": bad}) + "\n" for good, bad in pairs).encode()
    path.write_bytes(gzip.compress(lines) if path.suffix == ".gz" else lines)


def test_minimal_pairs_count_ties_as_half(bert_folder: Path, tmp_path: Path) -> None:
    model = load(bert_folder)
    good, bad = sorted(SENTENCES[:2], key=lambda each: -probes.pseudo_log_likelihoods(model, [each])[0])
    write_pairs(tmp_path / "order.jsonl", [(good, bad), (bad, good), (good, bad), (good, bad)])
    write_pairs(tmp_path / "tie.jsonl.gz", [(good, good.upper())])
    (tmp_path / "README.md").write_text("no pairs")
    actual = probes.minimal_pairs(model, tmp_path)
    assert {name: each.value for name, each in actual.items()} == {"minimal_pairs": 0.625, "order": 0.75, "tie": 0.5}
    assert list(probes.minimal_pairs(model, tmp_path / "order.jsonl")) == ["minimal_pairs"]


def test_wrong_files_of_minimal_pairs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no minimal pairs"):
        probes.read_minimal_pairs(tmp_path)
    (tmp_path / "bad.jsonl").write_text('{"good": "a"}\n')
    with pytest.raises(DataError, match=r"bad\.jsonl.*sentence_good"):
        probes.read_minimal_pairs(tmp_path)


def test_a_probe_finds_what_the_states_hold(bert_folder: Path) -> None:
    """Passages of two sources with different words are separated even by an untrained encoder."""
    documents = tuple(
        tuple(f" {'the cat sat on the mat' if n % 2 else '我爱北京天安门'} ." * 3 for _ in range(4)) for n in range(20)
    )
    text = StudyText(train=(), held_out="", documents=documents, sources=("zh", "en") * 10)
    assert intrinsic(load(bert_folder), text)["source"].value == 1


def test_text_without_neighboring_passages_is_refused_only_where_pairs_are_needed() -> None:
    sentence = " the cats sat on the mat, and a dog ran to the old tree again."
    text = StudyText(train=(), held_out="", documents=((sentence,),) * 9, sources=("a",) * 9)
    check_text(text, with_pairs=False)
    with pytest.raises(DataError, match="9 passages and 0 pairs"):
        check_text(text, with_pairs=True)


def test_models_without_a_vocabulary_head_have_no_masked_words(bert_folder: Path) -> None:
    assert probes.masked_words(replace(load(bert_folder), heads={}), TEXT) == {}
