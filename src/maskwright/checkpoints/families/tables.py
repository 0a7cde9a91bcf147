"""The tables of each family's weight names and config entries, and the parts that families share."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from maskwright.checkpoints.families.base import ConfigTable, DropoutEntry, Family, Field, Pair, TaskHead
from maskwright.core.types import FamilyName, HeadKind


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
EMBEDDINGS = (*WORDS_AND_POSITIONS, *weight("segment_embeddings", "embeddings.token_type_embeddings"), *EMBEDDING_NORM)

LAYER = (
    *(f"attention_blocks.{{n}}.{part}" for part in ("query", "key", "value", "output", "norm")),
    *(f"ffn_blocks.{{n}}.{part}" for part in ("dense_in", "dense_out", "norm")),
)


def layers(prefix: str, *theirs: str) -> tuple[Pair, ...]:
    """Pair the modules of a layer: query, key, value, output, norm; dense in, dense out, norm."""
    return tuple(pair for ours, name in zip(LAYER, theirs, strict=True) for pair in both(ours, prefix + name))


BERT_LAYERS = layers(
    "encoder.layer.{n}.",
    *("attention.self.query", "attention.self.key", "attention.self.value"),
    *("attention.output.dense", "attention.output.LayerNorm"),
    *("intermediate.dense", "output.dense", "output.LayerNorm"),
)
BERT_BODY = (*EMBEDDINGS, *BERT_LAYERS)
BERT_POOLER = both("pooler", "pooler.dense")
BERT_MLM = mlm_head("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions.bias")

# The classes have one name for next sentence and sentence order, so a model has one of them.
BERT_PAIR_HEADS = {"nsp": both("classifier", "cls.seq_relationship"), "sop": both("classifier", "cls.seq_relationship")}

# SpanBERT's names; no class has this head, and all ignore it.
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


def over_tokens(dropout: DropoutEntry | None, output: str = "classifier") -> TaskHead:
    """Return one layer over tokens."""
    return TaskHead(source="tokens", output=output, dropout=dropout)


def task_heads(
    name: str,
    *,
    sequence: TaskHead,
    choice: TaskHead,
    token: TaskHead,
    span: TaskHead | None = None,
) -> Mapping[HeadKind, TaskHead]:
    """List the heads for labeled examples; `span` is one layer by default, without dropout."""
    span = span or over_tokens(None, "qa_outputs")
    return {
        "sequence": replace(sequence, architecture=f"{name}ForSequenceClassification"),
        "token": replace(token, architecture=f"{name}ForTokenClassification"),
        "span": replace(span, architecture=f"{name}ForQuestionAnswering"),
        "choice": replace(choice, architecture=f"{name}ForMultipleChoice"),
    }


def pooled_task_heads(name: str, entry: str, assumed: float | None = None) -> Mapping[HeadKind, TaskHead]:
    """List the heads of BERT, ALBERT and ERNIE: one linear layer, over sequences on the pooled vector."""
    dropout = DropoutEntry(entry, assumed)
    head = TaskHead(source="pooled", output="classifier", dropout=dropout)
    return task_heads(name, sequence=head, choice=head, token=over_tokens(dropout))


def _bert_like(name: FamilyName, classes: str, **config: Any) -> Family:
    return Family(
        name=name,
        prefix=f"{name}.",
        body=BERT_BODY,
        pooler=BERT_POOLER,
        heads={"mlm": BERT_MLM, **BERT_PAIR_HEADS, "sbo": SBO_HEAD},
        tasks=pooled_task_heads(classes, "classifier_dropout"),
        tied=(
            ("cls.predictions.decoder.weight", f"{name}.embeddings.word_embeddings.weight"),
            ("cls.predictions.decoder.bias", "cls.predictions.bias"),
        ),
        architectures=(
            (frozenset({"mlm", "nsp"}), f"{classes}ForPreTraining"),
            (frozenset({"mlm", "sop"}), f"{classes}ForPreTraining"),
            (frozenset({"mlm"}), f"{classes}ForMaskedLM"),
            (frozenset({"nsp"}), f"{classes}ForNextSentencePrediction"),
            (frozenset({"sop"}), f"{classes}ForNextSentencePrediction"),
            (frozenset(), f"{classes}Model"),
        ),
        config=ConfigTable(fields=bert_fields(), activation=("hidden_act", "gelu"), vocab_size=30522, **config),
    )


# BERT (Devlin et al. 2019); also the classes of BERT-wwm, MacBERT and SpanBERT.
BERT = _bert_like("bert", "Bert")
# ERNIE 1.0 (Sun et al. 2019). ERNIE 2.0 and 3.0 add an embedding of the task to every token.
ERNIE = _bert_like("ernie", "Ernie", constants={"use_task_id": False})

# RoBERTa (Liu et al. 2019).
ROBERTA = Family(
    name="roberta",
    prefix="roberta.",
    body=BERT_BODY,
    pooler=BERT_POOLER,
    # No RoBERTa class has a pair head; they ignore BERT's names.
    heads={"mlm": mlm_head("lm_head.dense", "lm_head.layer_norm", "lm_head.bias"), **BERT_PAIR_HEADS, "sbo": SBO_HEAD},
    tasks=task_heads(
        "Roberta",
        sequence=TaskHead(
            source="first",
            dense="classifier.dense",
            drops_source=True,
            output="classifier.out_proj",
            dropout=DropoutEntry("classifier_dropout"),
        ),
        choice=TaskHead(source="pooled", output="classifier", dropout=DropoutEntry(None)),
        token=over_tokens(DropoutEntry("classifier_dropout")),
    ),
    tied=(
        ("lm_head.decoder.weight", "roberta.embeddings.word_embeddings.weight"),
        ("lm_head.decoder.bias", "lm_head.bias"),
    ),
    architectures=((frozenset({"mlm"}), "RobertaForMaskedLM"), (frozenset(), "RobertaModel")),
    config=ConfigTable(
        fields=bert_fields(),
        activation=("hidden_act", "gelu"),
        vocab_size=50265,
        pad_token_id=1,
        positions_after_pad=True,
        names_ends=True,
        initializer="normal",
        head_activation="gelu",
    ),
)


# ELECTRA (Clark et al. 2020): discriminator and generator are separate folders of this family.
ELECTRA = Family(
    name="electra",
    prefix="electra.",
    body=BERT_BODY,
    projection=both("embedding_projection", "embeddings_project"),
    # No ELECTRA class has a pooler or a pair head; they ignore BERT's names.
    pooler=BERT_POOLER,
    heads={
        "rtd": RTD_HEAD,
        "mlm": mlm_head("generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head.bias"),
        **BERT_PAIR_HEADS,
        "sbo": SBO_HEAD,
    },
    # DEVIATION: for sequences the original has one linear layer on the first token, with dropout 0.1 (electra:
    # finetune/classification/classification_tasks.py); answers are found by beam search, the end given the start, and
    # a layer predicts whether there is one (finetune/qa/qa_tasks.py). transformers' classes have one more dense layer,
    # and one linear layer for both ends; maskwright's models are those of these classes, so that anyone can load them.
    tasks=task_heads(
        "Electra",
        sequence=TaskHead(
            source="first",
            dense="classifier.dense",
            activation="gelu",
            drops_source=True,
            output="classifier.out_proj",
            dropout=DropoutEntry("classifier_dropout"),
        ),
        choice=TaskHead(
            source="first",
            dense="sequence_summary.summary",
            activation="gelu",
            output="classifier",
            dropout=DropoutEntry("summary_last_dropout", assumed=0.1),
            constants={"summary_type": "first", "summary_use_proj": True, "summary_activation": "gelu"},
        ),
        token=over_tokens(DropoutEntry("classifier_dropout")),
    ),
    tied=(("generator_lm_head.weight", "electra.embeddings.word_embeddings.weight"),),
    architectures=(
        (frozenset({"rtd"}), "ElectraForPreTraining"),
        (frozenset({"mlm"}), "ElectraForMaskedLM"),
        (frozenset(), "ElectraModel"),
    ),
    config=ConfigTable(
        fields=bert_fields(256, 12, 4, 1024, embedding_size=128),
        activation=("hidden_act", "gelu"),
        vocab_size=30522,
        head_activation="gelu",
    ),
)


# ALBERT (Lan et al. 2020): groups of layers that share weights, and always a dense layer after the embeddings.
_ALBERT_LAYERS = layers(
    "encoder.albert_layer_groups.{n}.",
    *("attention.query", "attention.key", "attention.value", "attention.dense", "attention.LayerNorm"),
    *("ffn", "ffn_output", "full_layer_layer_norm"),
)
_PAIR_HEAD = both("classifier", "sop_classifier.classifier")

ALBERT = Family(
    name="albert",
    prefix="albert.",
    body=(*EMBEDDINGS, *_ALBERT_LAYERS),
    projection=both("embedding_projection", "encoder.embedding_hidden_mapping_in"),
    always_projects=True,
    pooler=both("pooler", "pooler"),
    heads={
        "mlm": mlm_head("predictions.dense", "predictions.LayerNorm", "predictions.bias"),
        "sop": _PAIR_HEAD,
        # The paper's comparison of the two (section 4.6).
        "nsp": _PAIR_HEAD,
        # No ALBERT class has this head; they ignore ELECTRA's names.
        "rtd": RTD_HEAD,
        "sbo": SBO_HEAD,
    },
    tasks=pooled_task_heads("Albert", "classifier_dropout_prob", assumed=0.1),
    tied=(
        ("predictions.decoder.weight", "albert.embeddings.word_embeddings.weight"),
        ("predictions.decoder.bias", "predictions.bias"),
    ),
    architectures=(
        (frozenset({"mlm", "sop"}), "AlbertForPreTraining"),
        (frozenset({"mlm", "nsp"}), "AlbertForPreTraining"),
        (frozenset({"mlm"}), "AlbertForMaskedLM"),
        (frozenset(), "AlbertModel"),
    ),
    config=ConfigTable(
        fields=bert_fields(4096, 12, 64, 16384, dropout=0, embedding_size=128),
        activation=("hidden_act", "gelu_new"),
        vocab_size=30000,
        names_ends=True,
        grouped=True,
        constants={"inner_group_num": 1},
    ),
)


# DistilBERT (Sanh et al. 2019): no segments, no pooler, and other names in config.json too.
_DISTILBERT_LAYERS = layers(
    "transformer.layer.{n}.",
    *("attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin", "sa_layer_norm"),
    *("ffn.lin1", "ffn.lin2", "output_layer_norm"),
)


_DISTILBERT_HEAD = TaskHead(
    source="first",
    dense="pre_classifier",
    activation="relu",
    output="classifier",
    dropout=DropoutEntry("seq_classif_dropout", assumed=0.2),
)

DISTILBERT = Family(
    name="distilbert",
    prefix="distilbert.",
    body=(*WORDS_AND_POSITIONS, *EMBEDDING_NORM, *_DISTILBERT_LAYERS),
    pooler=(),
    heads={"mlm": mlm_head("vocab_transform", "vocab_layer_norm", "vocab_projector.bias"), "sbo": SBO_HEAD},
    tasks=task_heads(
        "DistilBert",
        sequence=_DISTILBERT_HEAD,
        choice=_DISTILBERT_HEAD,
        token=over_tokens(DropoutEntry(None)),
        span=over_tokens(DropoutEntry("qa_dropout", assumed=0.1), "qa_outputs"),
    ),
    tied=(("vocab_projector.weight", "distilbert.embeddings.word_embeddings.weight"),),
    architectures=((frozenset({"mlm"}), "DistilBertForMaskedLM"), (frozenset(), "DistilBertModel")),
    config=ConfigTable(
        fields=(
            ("hidden_size", "dim", 768),
            ("num_layers", "n_layers", 6),
            ("num_heads", "n_heads", 12),
            ("intermediate_size", "hidden_dim", 3072),
            ("hidden_dropout", "dropout", 0.1),
            ("attention_dropout", "attention_dropout", 0.1),
            ("initializer_range", "initializer_range", 0.02),
        ),
        activation=("activation", "gelu"),
        fixed={"type_vocab_size": 0, "layer_norm_eps": 1e-12},
        vocab_size=30522,
        initializer="normal",
    ),
)
