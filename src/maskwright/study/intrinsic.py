"""Tasks made from the text itself, by a model's own heads or by logistic regressions on its frozen states.

sentence order, next sentence, source
               two passages that follow each other, in order or swapped (Lan et al. 2020), or the second from another
               document (Devlin et al. 2019); the source a passage is from. By the model's own head if it has one,
               else by a logistic regression on its frozen hidden states: [mean over tokens; first token].
replaced words a share of the words is replaced by words sampled from the held-out text; the area under the ROC curve of
               the model's score that a word was replaced (ELECTRA's head, else a logistic regression on the word's
               states).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maskwright.core.errors import DataError
from maskwright.core.randomness import generator
from maskwright.core.tensors import mean_of_tokens
from maskwright.core.types import IntArray
from maskwright.inference.model import Model
from maskwright.study.probes import GROUPS, PASSAGES, WORDS, Floats, Measurement, Measurements, embed_texts, mean_of
from maskwright.study.text import StudyText

PAIRS = 2000
REPLACED_SHARE = 0.15


def check_text(text: StudyText, with_pairs: bool) -> None:
    """Raise DataError for held-out text that is too little for the probes, before anything is trained."""
    pairs = text.pairs(PAIRS)
    if not text.passages(1) or (with_pairs and (len(pairs) < 8 or len({document for document, _, _ in pairs}) < 4)):
        raise DataError(
            f"the held-out text gives {len(text.passages(PASSAGES))} passages and {len(pairs)} pairs of neighbors",
            allowed="1 passage or more; for `intrinsic` 8 pairs or more, from 4 documents or more",
            hint="Give more text, or for `intrinsic` documents of several sentences each; or leave that task out.",
        )


def intrinsic(model: Model, text: StudyText) -> Measurements:
    """Measure sentence order, next sentence, replaced words and, with several sources, source."""
    pairs = text.pairs(PAIRS)
    draw = generator(0, "study pairs")
    # Half of the documents train the probes; own heads are measured on the other half too.
    documents = np.array([document for document, _, _ in pairs])
    train = np.isin(documents, draw.permutation(np.unique(documents))[::2])
    label = np.empty(len(pairs), dtype=np.int64)
    for half in (train, ~train):
        label[half] = draw.permutation(int(half.sum())) % 2
    others = np.arange(len(pairs))
    for half in (train, ~train):  # Else a probe could remember the passage from a pair that it was trained on.
        for index in np.flatnonzero(half):
            others[index] = draw.choice(np.flatnonzero(half & (documents != documents[index])))
    in_order = [(first, second) for _, first, second in pairs]
    swapped = [(b, a) if is_one else (a, b) for (a, b), is_one in zip(in_order, label, strict=True)]
    moved = [
        (a, in_order[other][1] if is_one else b) for (a, b), is_one, other in zip(in_order, label, others, strict=True)
    ]
    measurements: Measurements = {}
    for name, kind, texts in (("sentence_order", "sop", swapped), ("next_sentence", "nsp", moved)):
        states, pooled = _pair_states(model, texts)
        if kind in model.heads and pooled is not None:
            with torch.inference_mode():
                right = model.heads[kind](pooled).argmax(dim=1).cpu().numpy() == label
            measurements[name] = mean_of(right[~train] * 1.0, "head", chance=0.5)
        else:
            right = _fitted(states, label, train).predict(states[~train]) == label[~train]
            measurements[name] = mean_of(right * 1.0, "probe", chance=0.5)
    measurements["replaced_words"] = _replaced_words(model, text)
    passages = text.passages(PAIRS)
    sources = np.unique([text.sources[document] for document, _ in passages], return_inverse=True)[1]
    by_source = sorted(range(len(text.documents)), key=lambda document: text.sources[document])
    half = np.isin([document for document, _ in passages], by_source[::2])
    if len(np.unique(sources[half])) > 1 and not half.all():
        vectors = embed_texts(model, [passage for _, passage in passages])
        right = _fitted(vectors, sources, half).predict(vectors[~half]) == sources[~half]
        most_frequent = float(np.bincount(sources[~half]).max() / (~half).sum())
        measurements["source"] = mean_of(right * 1.0, "probe", chance=most_frequent)
    return measurements


def _fitted(states: Floats, labels: IntArray, train: NDArray[np.bool_]) -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    probe = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=500, class_weight="balanced"))
    return probe.fit(states[train], labels[train])


def _pair_states(model: Model, pairs: Sequence[tuple[str, str]]) -> tuple[Floats, Tensor | None]:
    """Return [mean over tokens; first token] of each pair (n, 2 H), and pooled vectors (n, H) if any."""
    special, limit = model.tokenizer.special_tokens, model.max_length - 3
    encoded = model.tokenizer.encode_batch([text for pair in pairs for text in pair])
    sequences, segments = [], []
    for first, second in zip(encoded[::2], encoded[1::2], strict=True):
        kept = min(len(first), max(limit // 2, limit - len(second)))  # The longer one is cut, as in BERT.
        second = second[: limit - kept]
        sequences.append(np.concatenate([[special.cls], first[:kept], [special.sep], second, [special.sep]]))
        segments.append(np.repeat([0, 1], [kept + 2, len(second) + 1]))
    width = model.encoder.config.hidden_size
    firsts, means = torch.zeros(len(pairs), width), np.zeros((len(pairs), width))
    for laid, hidden in model.texts.encode(sequences, segments=segments):
        firsts[laid.texts] = hidden[laid.starts].cpu()
        means[laid.texts] = mean_of_tokens(hidden.double(), laid.batch).cpu().numpy()
    states = np.concatenate([means, firsts.double().numpy()], axis=1)
    with torch.inference_mode():
        device = model.encoder.word_embeddings.weight.device
        return states, None if model.encoder.pooler is None else model.encoder.pool(firsts.to(device))


def _replaced_words(model: Model, text: StudyText) -> Measurement:
    from sklearn.metrics import roc_auc_score

    passages = [passage for _, passage in text.passages(PASSAGES)]
    words = [list(WORDS.finditer(passage)) for passage in passages]
    vocabulary = [match.group() for each in words for match in each]
    labels, spans, changed = [], [], []
    for number, (passage, matches) in enumerate(zip(passages, words, strict=True)):
        draw = generator(0, "study replacements", 0, number)
        parts, end, where = [], 0, []
        for match in matches:
            parts.append(passage[end : match.start()])
            other = vocabulary[int(draw.integers(len(vocabulary)))]
            is_replaced = draw.random() < REPLACED_SHARE and other.casefold() != match.group().casefold()
            begin = sum(map(len, parts))
            parts.append(other if is_replaced else match.group())
            where.append((begin, begin + len(parts[-1])))
            labels.append(is_replaced)
            end = match.end()
        changed.append("".join([*parts, passage[end:]]))
        spans.append(where)
    special, limit = model.tokenizer.special_tokens, model.max_length - 2
    encoded = [model.tokenizer.encode(passage) for passage in changed]
    sequences = [np.concatenate([[special.cls], each.ids[:limit], [special.sep]]) for each in encoded]
    states: list[Floats] = [np.zeros(0)] * len(changed)
    for laid, scores in model.texts.encode(sequences):
        if "rtd" in model.heads:
            with torch.inference_mode():
                scores = model.heads["rtd"](scores)[:, None]
        array = scores.double().cpu().numpy()
        for number, start in zip(laid.texts, laid.starts, strict=True):
            offsets = encoded[number].offsets[:limit]
            inside = [(offsets[:, 0] < end) & (offsets[:, 1] > begin) for begin, end in spans[number]]
            rows = array[start + 1 : start + 1 + len(offsets)]
            # A word behind the end of the longest sequence has no state: it gets that of its passage's last token.
            states[number] = np.array([rows[mask].mean(axis=0) if mask.any() else rows[-1] for mask in inside])
    replaced = np.array(labels)
    of_passage = np.repeat(np.arange(len(passages)), [len(each) for each in words])
    features = np.concatenate([each for each in states if len(each)])
    train = of_passage % 2 == 0
    if "rtd" in model.heads:
        scores_of_test = features[~train, 0]
    else:
        scores_of_test = _fitted(features, replaced, train).decision_function(features[~train])
    wanted, group = replaced[~train], of_passage[~train] // 2 % GROUPS
    groups = [
        float(roc_auc_score(wanted[group == number], scores_of_test[group == number]))
        for number in range(GROUPS)
        if len(set(wanted[group == number])) == 2
    ]
    return Measurement(
        value=float(roc_auc_score(wanted, scores_of_test)),
        count=len(wanted),
        groups=tuple(groups),
        by="head" if "rtd" in model.heads else "probe",
        chance=0.5,
    )
