"""Tiny random models of transformers, for every family and every kind of head; tokenizers; batches for both sides."""

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor
from transformers import PreTrainedModel

from maskwright.core.tensors import PackedBatch
from maskwright.core.types import HeadKind
from maskwright.data.tokenizers.spec import ByteBPE, Unigram, WordPiece
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.data.tokenizers.training import train_byte_bpe, train_unigram, train_wordpiece
from maskwright.finetuning.evaluate import predict_examples as predict_in_order
from maskwright.finetuning.features import FeatureBatch
from maskwright.finetuning.model.fine_tuned import FineTunedModel
from maskwright.finetuning.tasks.base import Prediction
from maskwright.inference.batches import TextEncoder
from tests.checkpoints.tiny_models import VOCAB_SIZE, build

LABELS = ("bad", "fair", "good")
LENGTHS = (13, 5, 20, 2, 9, 7)
"""Tokens of the sequences: six texts, or three questions with two options each."""
OPTIONS = 2

_SHAPE: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 40,
}
_DISTILBERT: dict[str, Any] = {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "max_position_embeddings": 40}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("Bert", _SHAPE),
    "roberta": (
        "Roberta",
        {**_SHAPE, "max_position_embeddings": 42, "type_vocab_size": 1, "layer_norm_eps": 1e-5, "pad_token_id": 1},
    ),
    "albert": ("Albert", {**_SHAPE, "embedding_size": 16, "hidden_act": "gelu_pytorch_tanh"}),
    "electra": ("Electra", {**_SHAPE, "embedding_size": 16}),
    "distilbert": ("DistilBert", _DISTILBERT),
    "ernie": ("Ernie", {**_SHAPE, "hidden_act": "relu", "layer_norm_eps": 1e-5}),
    "modernbert": (
        "ModernBert",
        {**_SHAPE, "local_attention": 6}
        | {f"{name}_token_id": number for name, number in (("pad", 0), ("bos", 2), ("cls", 2), ("eos", 3), ("sep", 3))},
    ),
}
"""By family: what its classes' names begin with, and its configuration."""
CLASSES: dict[HeadKind, str] = {
    "sequence": "ForSequenceClassification",
    "token": "ForTokenClassification",
    "span": "ForQuestionAnswering",
    "choice": "ForMultipleChoice",
}
KINDS: tuple[HeadKind, ...] = ("sequence", "token", "span", "choice")
TEXTS = (
    "The cat sat on the mat, and the dogs ran to the old tree.",
    "Who sat on the mat? The cat did, and a dog.",
    "Wir lieben München und Straßen; 我们 爱 北京 天安门!",
    "Anna lives in Paris, Bob works for Acme in London.",
)
EVERY_HEAD = pytest.mark.parametrize(("family", "kind"), [(family, kind) for family in FAMILIES for kind in KINDS])
SOME_HEADS = pytest.mark.parametrize(("family", "kind"), [*zip(FAMILIES, itertools.cycle(KINDS), strict=False)])
"""Each family and each kind at least once."""


@functools.cache
def tokenizer_of(family: str) -> Tokenizer:
    """Train a tiny tokenizer of the kind that a family has, from scratch."""
    sample = list(TEXTS) * 20
    if family == "roberta":
        return train_byte_bpe(ByteBPE(vocab_size=320), sample)
    if family == "albert":
        return train_unigram(Unigram(vocab_size=110), sample, sample)
    return train_wordpiece(WordPiece(vocab_size=200), sample, sample)


def pretrained(folder: Path, family: str, **changes: Any) -> Path:
    """Write a tiny model with a family's pretraining heads, and its tokenizer."""
    name, tokenizer = FAMILIES[family][0], tokenizer_of(family)
    suffix = "ForMaskedLM" if family in ("roberta", "distilbert", "modernbert") else "ForPreTraining"
    config = config_of(family, vocab_size=tokenizer.special_tokens.vocab_size, **changes)
    build(getattr(transformers, name + suffix), config).save_pretrained(folder)
    tokenizer.save(folder)
    return folder


def class_of(family: str, kind: HeadKind) -> type[PreTrainedModel]:
    """Return the class of transformers for a family and a kind of head."""
    model_class: type[PreTrainedModel] = getattr(transformers, FAMILIES[family][0] + CLASSES[kind])
    return model_class


def config_of(family: str, *, labels: tuple[str, ...] = (), vocab_size: int = VOCAB_SIZE, **changes: Any) -> Any:
    """Return a tiny configuration, weights far from the usual 0.02 so that everything tells models apart."""
    name, shape = FAMILIES[family]
    named = {"id2label": dict(enumerate(labels)), "label2id": {label: index for index, label in enumerate(labels)}}
    settings = {"vocab_size": vocab_size, "initializer_range": 0.2, **shape, **(named if labels else {}), **changes}
    return getattr(transformers, f"{name}Config")(**settings)


def tuned(family: str, kind: HeadKind, **changes: Any) -> PreTrainedModel:
    """Build a model of the class for a kind of head; of those with labels, with three."""
    labels = LABELS if kind in ("sequence", "token") else ()
    return build(class_of(family, kind), config_of(family, **{"labels": labels, **changes}))


@dataclass(frozen=True, slots=True)
class Ragged:
    """The same sequences padded (for transformers) and packed (for us).

    Attributes:
        padded: Keyword arguments of a transformers model: (B, L), or (B / 2, 2, L) for choice.
        batch: For us; tags are predicted at every second token.
        real: Shape (B, L), where there is a token.
    """

    padded: dict[str, Tensor]
    batch: FeatureBatch
    real: Tensor


def ragged(family: str, kind: HeadKind, seed: int = 0) -> Ragged:
    """Make random sequences of ragged lengths."""
    draws = torch.Generator().manual_seed(seed)
    pad, segments = (1 if family == "roberta" else 0), family not in ("roberta", "distilbert", "modernbert")
    lengths = torch.tensor(LENGTHS)
    shape = (len(LENGTHS), int(lengths.max()))
    column = torch.arange(shape[1]).expand(shape)
    real = column < lengths[:, None]
    ids = torch.where(real, torch.randint(5, VOCAB_SIZE, shape, generator=draws), pad)
    segment_ids = torch.where(real & (column > 3), 1 if segments else 0, 0)
    of_unit = OPTIONS if kind == "choice" else 1
    batch = FeatureBatch(
        batch=PackedBatch(
            ids=ids[real],
            position_ids=column[real],
            segment_ids=segment_ids[real],
            cu_seqlens=torch.cat([torch.zeros(1), lengths.cumsum(0)]).int(),
            max_seqlen=shape[1],
        ),
        unit_numbers=np.arange(len(LENGTHS) // of_unit),
        units=torch.arange(len(LENGTHS)) // of_unit,
        positions=torch.arange(sum(LENGTHS))[::2] if kind == "token" else None,
        labels=None,
    )
    padded = {"input_ids": ids, "attention_mask": real.long()}
    if segments:
        padded["token_type_ids"] = segment_ids
    if kind == "choice":
        padded = {name: values.view(-1, OPTIONS, shape[1]) for name, values in padded.items()}
    return Ragged(padded, batch, real)


def their_scores(model: PreTrainedModel, kind: HeadKind, made: Ragged) -> Tensor:
    """Return transformers' scores in the shape of ours, of real tokens only."""
    output = model(**made.padded)
    if kind == "span":
        return torch.stack([output.start_logits[made.real], output.end_logits[made.real]], dim=1)
    if kind == "token":
        return output.logits[made.real][::2]
    return output.logits.view(-1, 1) if kind == "choice" else output.logits


def with_key(batch: FeatureBatch, dropout_key: int | None) -> FeatureBatch:
    """Return a batch with another key of its dropout masks."""
    return replace(batch, batch=replace(batch.batch, dropout_key=dropout_key))


def predict_examples(model: FineTunedModel, examples: Sequence[Any]) -> list[Prediction]:
    """Return one prediction per example."""
    return predict_in_order(model, TextEncoder(model.encoder, "fp32"), examples)


def dropouts_of(model: PreTrainedModel) -> Iterator[float]:
    """List the rates of the dropout modules outside the encoder."""
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Dropout) and not name.startswith(model.base_model_prefix):
            yield module.p
