"""Tiny random models of transformers, ragged batches for both sides, and ours built from a folder."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors.torch import load_file
from torch import Tensor, nn

from maskwright.checkpoints.checkpoint import Checkpoint, save_model
from maskwright.core.tensors import PackedBatch
from maskwright.core.types import SpecialTokens
from maskwright.model.encoder import Encoder
from maskwright.pretext.objectives import (
    MaskedLanguageModeling,
    NextSentencePrediction,
    ReplacedTokenDetection,
    SentenceOrderPrediction,
    SpanBoundaryObjective,
)

VOCAB_SIZE = 73
LENGTHS = (13, 5, 20, 1, 9)
MLM, NSP, SOP = MaskedLanguageModeling(), NextSentencePrediction(), SentenceOrderPrediction()
RTD, SBO = ReplacedTokenDetection(), SpanBoundaryObjective()
OBJECTIVES = (MLM, NSP, SOP, RTD, SBO)
BERT_TOKENS = SpecialTokens(
    pad=0, unk=1, cls=2, sep=3, mask=4, vocab_size=VOCAB_SIZE, names=("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
)
ROBERTA_TOKENS = SpecialTokens(
    pad=1, unk=3, cls=0, sep=2, mask=4, vocab_size=VOCAB_SIZE, names=("<pad>", "<unk>", "<s>", "</s>", "<mask>")
)

_SHAPE: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "initializer_range": 0.15,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}


def bert_config(**changes: Any) -> transformers.BertConfig:
    """A tiny BERT without dropout, weights large enough for attention to matter."""
    return transformers.BertConfig(**{**_SHAPE, "max_position_embeddings": 24, **changes})


def roberta_config(**changes: Any) -> transformers.RobertaConfig:
    """The same for RoBERTa."""
    shape = {"max_position_embeddings": 26, "type_vocab_size": 1, "layer_norm_eps": 1e-5, "pad_token_id": 1}
    return transformers.RobertaConfig(**{**_SHAPE, **shape, **changes})


def albert_config(**changes: Any) -> transformers.AlbertConfig:
    """The same for ALBERT: E is a third of H, and all layers share their weights."""
    return transformers.AlbertConfig(**{**_SHAPE, "embedding_size": 16, "max_position_embeddings": 24, **changes})


def electra_config(**changes: Any) -> transformers.ElectraConfig:
    """The same for ELECTRA, E a third of H."""
    return transformers.ElectraConfig(**{**_SHAPE, "embedding_size": 16, "max_position_embeddings": 24, **changes})


def distilbert_config(**changes: Any) -> transformers.DistilBertConfig:
    """The same for DistilBERT."""
    shape = {"vocab_size": VOCAB_SIZE, "dim": 48, "n_layers": 3, "n_heads": 4, "hidden_dim": 96}
    rates = {"initializer_range": 0.15, "dropout": 0.0, "attention_dropout": 0.0}
    return transformers.DistilBertConfig(**{**shape, **rates, "max_position_embeddings": 24, **changes})


def ernie_config(**changes: Any) -> transformers.ErnieConfig:
    """The same for ERNIE 1.0."""
    shape = {"max_position_embeddings": 25, "hidden_act": "relu", "layer_norm_eps": 1e-5}
    return transformers.ErnieConfig(**{**_SHAPE, **shape, **changes})


def modernbert_config(**changes: Any) -> transformers.ModernBertConfig:
    """The same for ModernBERT, with windows of three tokens to either side."""
    tokens = {f"{name}_token_id": id for name, id in (("pad", 0), ("bos", 2), ("cls", 2), ("eos", 3), ("sep", 3))}
    shape = {"num_hidden_layers": 5, "local_attention": 6, "max_position_embeddings": 24, "attention_dropout": 0.0}
    sizes = {name: _SHAPE[name] for name in ("vocab_size", "hidden_size", "num_attention_heads", "intermediate_size")}
    return transformers.ModernBertConfig(**{**sizes, "initializer_range": 0.15, **tokens, **shape, **changes})


CASES: tuple[tuple[str, str, Any], ...] = (
    ("BertForPreTraining", "gelu", bert_config()),
    ("BertForPreTraining", "tanh gelu", bert_config(hidden_act="gelu_new")),
    ("BertForPreTraining", "large eps", bert_config(hidden_act="gelu_pytorch_tanh", layer_norm_eps=1e-5)),
    ("BertForPreTraining", "relu, one segment", bert_config(hidden_act="relu", type_vocab_size=1)),
    ("BertForMaskedLM", "tanh gelu", bert_config(hidden_act="gelu_pytorch_tanh")),
    ("BertForNextSentencePrediction", "", bert_config()),
    ("BertModel", "one segment", bert_config(type_vocab_size=1)),
    ("RobertaForMaskedLM", "", roberta_config()),
    (
        "RobertaForMaskedLM",
        "pad 0, two segments",
        roberta_config(layer_norm_eps=1e-12, pad_token_id=0, type_vocab_size=2),
    ),
    ("RobertaModel", "", roberta_config()),
    ("AlbertForPreTraining", "", albert_config(hidden_act="gelu_pytorch_tanh")),
    ("AlbertForPreTraining", "two groups", albert_config(num_hidden_layers=5, num_hidden_groups=2, hidden_act="gelu")),
    ("AlbertForPreTraining", "relu", albert_config(num_hidden_groups=2, hidden_act="relu")),
    ("AlbertForPreTraining", "E is H", albert_config(embedding_size=48, hidden_act="gelu_pytorch_tanh")),
    ("AlbertForMaskedLM", "nothing shared", albert_config(num_hidden_groups=3, hidden_act="gelu_pytorch_tanh")),
    ("AlbertModel", "", albert_config(hidden_act="gelu_pytorch_tanh")),
    ("ElectraForPreTraining", "", electra_config()),
    ("ElectraForPreTraining", "E is H", electra_config(embedding_size=48, hidden_act="relu")),
    ("ElectraForMaskedLM", "", electra_config()),
    ("ElectraForMaskedLM", "E is H", electra_config(embedding_size=48)),
    ("ElectraModel", "", electra_config()),
    ("DistilBertForMaskedLM", "", distilbert_config()),
    ("DistilBertForMaskedLM", "tanh gelu", distilbert_config(activation="gelu_pytorch_tanh")),
    ("DistilBertModel", "", distilbert_config()),
    ("ErnieForPreTraining", "", ernie_config()),
    ("ErnieForMaskedLM", "", ernie_config(hidden_act="gelu", layer_norm_eps=1e-12)),
    ("ErnieModel", "", ernie_config()),
    ("ModernBertForMaskedLM", "", modernbert_config()),
    (
        "ModernBertForMaskedLM",
        "biases",
        modernbert_config(
            norm_bias=True, attention_bias=True, mlp_bias=True, classifier_bias=True, local_attention=128
        ),
    ),
    ("ModernBertModel", "", modernbert_config(global_attn_every_n_layers=2)),
)
"""(Class of transformers, what is special, its configuration): every class of every family."""
IDS = [f"{name} {special}".strip() for name, special, _ in CASES]


def segments_of(config: Any) -> int:
    """Count a configuration's kinds of segments."""
    return int(getattr(config, "type_vocab_size", 0))


def build(model_class: type[transformers.PreTrainedModel], config: Any, seed: int = 0) -> transformers.PreTrainedModel:
    """Build a model whose biases and LayerNorms are random too, so that a mix-up of them shows."""
    torch.manual_seed(seed)
    model = model_class(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter += 0.1 * torch.randn_like(parameter)
    return model


@dataclass(frozen=True, slots=True)
class Ragged:
    """The same sequences padded (for transformers) and packed (for us).

    Attributes:
        padded: Keyword arguments of a transformers model, each of shape (B, L).
        flat: The batch in rows of L.
        real: Shape (B, L), where there is a token.
        targets: Shape (M,), offsets of some tokens in the packed batch.
        labels: Shape (M,).
        pair_labels: Shape (B,).
        replaced: Shape (B, L), 0 or 1, whether each token is to be called a replaced one.
    """

    padded: dict[str, Tensor]
    flat: PackedBatch
    real: Tensor
    targets: Tensor
    labels: Tensor
    pair_labels: Tensor
    replaced: Tensor


def ragged(pad: int, segments: int, seed: int = 0) -> Ragged:
    """Make random sequences of ragged lengths; of no segments, transformers' model is not given any."""
    draws = torch.Generator().manual_seed(seed)
    shape = (len(LENGTHS), max(LENGTHS))
    column = torch.arange(shape[1]).expand(shape)
    real = column < torch.tensor(LENGTHS)[:, None]
    ids = torch.where(real, torch.randint(5, VOCAB_SIZE, shape, generator=draws), pad)
    segment_ids = torch.where(real & (column > 3), 1 if segments > 1 else 0, 0)
    targets = torch.randperm(sum(LENGTHS), generator=draws)[:12].sort().values
    flat = PackedBatch.of(ids[real].numpy(), segment_ids[real].numpy(), np.array(LENGTHS))
    kinds = {"token_type_ids": segment_ids} if segments else {}
    return Ragged(
        {"input_ids": ids, "attention_mask": real.long(), **kinds},
        flat,
        real,
        targets,
        torch.randint(5, VOCAB_SIZE, targets.shape, generator=draws),
        torch.randint(0, 2, (shape[0],), generator=draws),
        torch.randint(0, 2, shape, generator=draws),
    )


class Ours(nn.Module):
    """Our encoder and heads with the weights of a loaded folder, named as in `Checkpoint.state`."""

    def __init__(self, loaded: Checkpoint) -> None:
        super().__init__()
        shape = loaded.config.head_shape(loaded.vocab_size)
        self.encoder = Encoder(loaded.config, loaded.vocab_size)
        self.objectives = [objective for objective in OBJECTIVES if objective.kind in loaded.heads]
        self.heads = nn.ModuleDict({objective.kind: objective.head(shape) for objective in self.objectives})
        self.load_state_dict(loaded.state)


def save(folder: Path, loaded: Checkpoint, **changes: Any) -> None:
    """Save a loaded model, with changes of what `save_model` gets."""
    fields = {name: getattr(loaded, name) for name in ("family", "config", "state", "max_length", "task")}
    tokens = ROBERTA_TOKENS if loaded.config.position_offset == 2 else BERT_TOKENS
    save_model(folder, **(fields | {"special_tokens": tokens} | changes))


def tensors_of(folder: Path) -> dict[str, Tensor]:
    """Read a folder's weights as they are."""
    return load_file(folder / "model.safetensors")
