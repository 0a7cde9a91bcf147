"""Texts and pairs of texts: what classification, regression and multi-label tasks share.

Each example is one sequence and one unit. A pair that is too long loses the last tokens of its longer text, one by one
(google-research/bert, run_classifier.py, `_truncate_seq_pair`); a single text loses its end.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from maskwright.data.tokenizers.stream_encoder import StreamEncoder
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.finetuning.examples import TextExample
from maskwright.finetuning.features import Features
from maskwright.finetuning.layout import Ranges, cut_pairs, lay_out, ranges_of, room
from maskwright.finetuning.tasks.base import Scores
from maskwright.finetuning.tasks.parts import learnable, unknown_label_of


def text_features(
    examples: Sequence[TextExample], tokenizer: Tokenizer, *, max_length: int, segments: bool
) -> Features:
    """Turn texts and pairs into sequences, one a unit, without labels.

    Args:
        examples: The texts.
        tokenizer: The model's.
        max_length: Tokens of a sequence at most, special ones counted.
        segments: Whether a second text is segment 1.

    Raises:
        DataError: If no text fits into `max_length`.
    """
    pairs = np.array([len(example.texts) == 2 for example in examples], dtype=bool)
    single_room = room(tokenizer, max_length, pair=False)
    pair_room = room(tokenizer, max_length, pair=True, needed=2) if pairs.any() else 0
    stream = StreamEncoder(tokenizer).encode([text for example in examples for text in example.texts])
    texts = ranges_of(stream.lengths)
    begins = np.concatenate([[0], np.cumsum(1 + pairs)])[:-1].astype(np.int64)
    first = texts.pick(begins)
    second = texts.pick(begins + pairs)
    second = Ranges(second.starts, np.where(pairs, second.ends, second.starts))
    of_first, of_second = cut_pairs(first.lengths, second.lengths, pair_room)
    of_first = np.where(pairs, of_first, np.minimum(first.lengths, single_room))
    of_second = np.where(pairs, of_second, 0)
    is_cut = (of_first < first.lengths) | (of_second < second.lengths)
    laid = lay_out(
        stream.ids, first.first(of_first), second.first(of_second), tokenizer, segments=segments, pairs=pairs
    )
    numbers = np.arange(len(examples), dtype=np.int64)
    return Features(
        ids=laid.ids,
        segment_ids=laid.segment_ids,
        cu_seqlens=laid.cu_seqlens,
        units=numbers,
        examples=numbers,
        num_cut=int(np.count_nonzero(is_cut)),
    )


def features_of_texts(
    examples: Sequence[TextExample],
    tokenizer: Tokenizer,
    *,
    max_length: int,
    segments: bool,
    training: bool,
    target: Callable[[TextExample], Any],
    dtype: DTypeLike,
    check: Callable[[Sequence[TextExample]], None] = lambda _: None,
) -> Features:
    """Turn texts and pairs into sequences (see `text_features`); in training those that have labels, with targets.

    Args:
        training: Whether targets are wanted.
        target: What is to be learnt of an example with a label.
        dtype: Of the targets.
        check: Refuses examples whose labels the task cannot have.

    Raises:
        DataError: If no text fits; in training, if no example has a label, or one that the task cannot have.
    """
    if not training:
        return text_features(examples, tokenizer, max_length=max_length, segments=segments)
    chosen = learnable(examples)
    kept = [examples[number] for number in chosen.tolist()]
    check(kept)
    targets = np.array([target(example) for example in kept], dtype=dtype)
    features = text_features(kept, tokenizer, max_length=max_length, segments=segments)
    return replace(features, examples=chosen, labels=targets)


def one_row_each(scores: Sequence[Scores], features: Features, examples: Sequence[TextExample]) -> Scores:
    """Return the scores as one array, a row an example: shape (examples, C), float64."""
    if not len(scores) == features.num_units == len(examples):
        raise ValueError(f"{len(scores)} scores for {len(examples)} examples: predict with features made for scoring")
    return np.stack(scores).astype(np.float64)


def check_classes(
    examples: Sequence[TextExample],
    labels: Sequence[str],
    names_of: Callable[[TextExample], Sequence[str]],
    *,
    one_each: bool = True,
) -> None:
    """Refuse classes that a task does not have.

    Args:
        examples: Labelled ones.
        labels: The task's classes.
        names_of: Gives an example's.
        one_each: Whether each has one.

    Raises:
        DataError: If one is unknown; the first such example is named.
    """
    known = frozenset(labels)
    for example in examples:
        for name in names_of(example):
            if name not in known:
                raise unknown_label_of(example.key, name, labels, one_each=one_each)
