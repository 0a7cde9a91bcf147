"""Tables that families have in common: BERT's names, and names of heads that some classes ignore."""

from collections.abc import Mapping

from maskwright.core.types import HeadKind
from maskwright.huggingface.families.base import DropoutEntry, Field, Pair, TaskHead


def weight(ours: str, theirs: str) -> tuple[Pair, ...]:
    """Pair the weight of a module."""
    return ((f"{ours}.weight", f"{theirs}.weight"),)


def both(ours: str, theirs: str) -> tuple[Pair, ...]:
    """Pair weight and bias of a module."""
    return (*weight(ours, theirs), (f"{ours}.bias", f"{theirs}.bias"))


def mlm_head(dense: str, norm: str, bias: str) -> tuple[Pair, ...]:
    """Pair the masked-token head, whose output matrix is the word embeddings."""
    return (*both("dense", dense), *both("layer_norm", norm), ("bias", bias))


def bert_fields(
    hidden_size: int = 768,
    num_layers: int = 12,
    num_heads: int = 12,
    intermediate_size: int = 3072,
    dropout: float = 0.1,
    embedding_size: int | None = None,
) -> tuple[Field, ...]:
    """List the config fields of all families but DistilBERT; the values are a class's defaults."""
    width: tuple[Field, ...] = () if embedding_size is None else (("embedding_size", "embedding_size", embedding_size),)
    return (
        ("hidden_size", "hidden_size", hidden_size),
        ("num_layers", "num_hidden_layers", num_layers),
        ("num_heads", "num_attention_heads", num_heads),
        ("intermediate_size", "intermediate_size", intermediate_size),
        *width,
        ("type_vocab_size", "type_vocab_size", 2),
        ("layer_norm_eps", "layer_norm_eps", 1e-12),
        ("hidden_dropout", "hidden_dropout_prob", dropout),
        ("attention_dropout", "attention_probs_dropout_prob", dropout),
        ("initializer_range", "initializer_range", 0.02),
    )


WORDS_AND_POSITIONS = (
    *weight("word_embeddings", "embeddings.word_embeddings"),
    *weight("position_embeddings", "embeddings.position_embeddings"),
)
EMBEDDING_NORM = both("embedding_norm", "embeddings.LayerNorm")
EMBEDDINGS = (
    *WORDS_AND_POSITIONS,
    *weight("segment_embeddings", "embeddings.token_type_embeddings"),
    *EMBEDDING_NORM,
)

# BERT's layers: also RoBERTa's, ELECTRA's and ERNIE's.
BERT_LAYERS = (
    *both("attention_blocks.{n}.query", "encoder.layer.{n}.attention.self.query"),
    *both("attention_blocks.{n}.key", "encoder.layer.{n}.attention.self.key"),
    *both("attention_blocks.{n}.value", "encoder.layer.{n}.attention.self.value"),
    *both("attention_blocks.{n}.output", "encoder.layer.{n}.attention.output.dense"),
    *both("attention_blocks.{n}.norm", "encoder.layer.{n}.attention.output.LayerNorm"),
    *both("ffn_blocks.{n}.dense_in", "encoder.layer.{n}.intermediate.dense"),
    *both("ffn_blocks.{n}.dense_out", "encoder.layer.{n}.output.dense"),
    *both("ffn_blocks.{n}.norm", "encoder.layer.{n}.output.LayerNorm"),
)
BERT_BODY = (*EMBEDDINGS, *BERT_LAYERS)
BERT_POOLER = both("pooler", "pooler.dense")
BERT_MLM = mlm_head("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions.bias")

# Next sentence and sentence order: the classes have one name for both, so a model has one of them.
BERT_PAIR_HEADS = {"nsp": both("classifier", "cls.seq_relationship"), "sop": both("classifier", "cls.seq_relationship")}

# SpanBERT's own names; no class has this head, and all ignore it.
SBO_HEAD = (
    *weight("place_embeddings", "cls.pair_target_predictions.position_embeddings"),
    *both("dense_in", "cls.pair_target_predictions.mlp_layer_norm.linear1"),
    *both("norm_in", "cls.pair_target_predictions.mlp_layer_norm.layer_norm1"),
    *both("dense_out", "cls.pair_target_predictions.mlp_layer_norm.linear2"),
    *both("norm_out", "cls.pair_target_predictions.mlp_layer_norm.layer_norm2"),
    ("bias", "cls.pair_target_predictions.bias"),
)

# ELECTRA's names; ALBERT's classes ignore them.
RTD_HEAD = (
    *both("dense", "discriminator_predictions.dense"),
    *both("dense_prediction", "discriminator_predictions.dense_prediction"),
)


def bert_tied(prefix: str) -> tuple[Pair, ...]:
    """List the second names of BERT's output layer."""
    return (
        ("cls.predictions.decoder.weight", f"{prefix}embeddings.word_embeddings.weight"),
        ("cls.predictions.decoder.bias", "cls.predictions.bias"),
    )


def bert_architectures(name: str) -> tuple[tuple[frozenset[str], str], ...]:
    """List the classes of BERT and ERNIE, which have one pair head for both pair tasks."""
    return (
        (frozenset({"mlm", "nsp"}), f"{name}ForPreTraining"),
        (frozenset({"mlm", "sop"}), f"{name}ForPreTraining"),
        (frozenset({"mlm"}), f"{name}ForMaskedLM"),
        (frozenset({"nsp"}), f"{name}ForNextSentencePrediction"),
        (frozenset({"sop"}), f"{name}ForNextSentencePrediction"),
        (frozenset(), f"{name}Model"),
    )


def task_heads(
    name: str,
    *,
    sequence: TaskHead,
    choice: TaskHead,
    token_dropout: DropoutEntry,
    span_dropout: DropoutEntry | None = None,
) -> Mapping[HeadKind, TaskHead]:
    """List the heads for labeled examples: one layer over tokens in all families; over sequences they differ."""
    return {
        "sequence": sequence,
        "token": TaskHead(
            architecture=f"{name}ForTokenClassification", source="tokens", output="classifier", dropout=token_dropout
        ),
        "span": TaskHead(
            architecture=f"{name}ForQuestionAnswering", source="tokens", output="qa_outputs", dropout=span_dropout
        ),
        "choice": choice,
    }


def pooled_task_heads(name: str, entry: str, assumed: float | None = None) -> Mapping[HeadKind, TaskHead]:
    """List the heads of BERT, ALBERT and ERNIE: one linear layer, over sequences on the pooled vector."""
    dropout = DropoutEntry(entry, assumed)

    def head(architecture: str) -> TaskHead:
        return TaskHead(architecture=f"{name}{architecture}", source="pooled", output="classifier", dropout=dropout)

    return task_heads(
        name,
        sequence=head("ForSequenceClassification"),
        choice=head("ForMultipleChoice"),
        token_dropout=dropout,
    )
