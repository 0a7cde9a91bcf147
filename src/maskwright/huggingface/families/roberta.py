"""RoBERTa (Liu et al. 2019)."""

from maskwright.huggingface.families.base import ConfigTable, DropoutEntry, Family, TaskHead
from maskwright.huggingface.families.parts import (
    BERT_BODY,
    BERT_PAIR_HEADS,
    BERT_POOLER,
    SBO_HEAD,
    bert_fields,
    mlm_head,
    task_heads,
)

ROBERTA = Family(
    name="roberta",
    prefix="roberta.",
    body=BERT_BODY,
    pooler=BERT_POOLER,
    # No class of RoBERTa has a pair head: the name is BERT's, and RoBERTa's classes pass over it.
    heads={
        "mlm": mlm_head("lm_head.dense", "lm_head.layer_norm", "lm_head.bias"),
        **BERT_PAIR_HEADS,
        "sbo": SBO_HEAD,
    },
    tasks=task_heads(
        "Roberta",
        sequence=TaskHead(
            architecture="RobertaForSequenceClassification",
            source="first",
            dense="classifier.dense",
            drops_source=True,
            output="classifier.out_proj",
            dropout=DropoutEntry("classifier_dropout"),
        ),
        choice=TaskHead(
            architecture="RobertaForMultipleChoice", source="pooled", output="classifier", dropout=DropoutEntry(None)
        ),
        token_dropout=DropoutEntry("classifier_dropout"),
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
