"""ELECTRA (Clark et al. 2020): discriminator and generator are a folder each, of one family."""

from maskwright.huggingface.families.base import ConfigTable, DropoutEntry, Family, TaskHead
from maskwright.huggingface.families.parts import (
    BERT_BODY,
    BERT_PAIR_HEADS,
    BERT_POOLER,
    RTD_HEAD,
    SBO_HEAD,
    bert_fields,
    both,
    mlm_head,
    task_heads,
)

ELECTRA = Family(
    name="electra",
    prefix="electra.",
    body=BERT_BODY,
    projection=both("embedding_projection", "embeddings_project"),
    # No class of ELECTRA has a pooler or a pair head: the names are BERT's, and ELECTRA's classes pass over them.
    pooler=BERT_POOLER,
    heads={
        "rtd": RTD_HEAD,
        "mlm": mlm_head("generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head.bias"),
        **BERT_PAIR_HEADS,
        "sbo": SBO_HEAD,
    },
    # DEVIATION: over sequences the original has one linear layer on the first token, of which it drops 0.1 (electra:
    # finetune/classification/classification_tasks.py); answers it finds by a beam, the end given the beginning, and a
    # layer that says whether there is one (finetune/qa/qa_tasks.py). The classes have a dense layer more and one linear
    # layer for both ends, and a model made here is a model of these classes, so that anyone can load it.
    tasks=task_heads(
        "Electra",
        sequence=TaskHead(
            architecture="ElectraForSequenceClassification",
            source="first",
            dense="classifier.dense",
            activation="gelu",
            drops_source=True,
            output="classifier.out_proj",
            dropout=DropoutEntry("classifier_dropout"),
        ),
        choice=TaskHead(
            architecture="ElectraForMultipleChoice",
            source="first",
            dense="sequence_summary.summary",
            activation="gelu",
            output="classifier",
            dropout=DropoutEntry("summary_last_dropout", assumed=0.1),
            constants={"summary_type": "first", "summary_use_proj": True, "summary_activation": "gelu"},
        ),
        token_dropout=DropoutEntry("classifier_dropout"),
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
