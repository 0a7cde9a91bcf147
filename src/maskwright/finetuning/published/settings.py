"""The published fine-tuning settings of systems: one table, each group of rows with its source.

A row holds only what its source says; the rest is BERT's, of the benchmark or of all tasks.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

ALL_WIDTHS = (0, 1 << 30)
_WIDTHS = {"(small)": (0, 512), "(large)": (1024, 1 << 30)}
"""Hidden sizes of the models that are called so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedSettings:
    """One row: fields of `Hyperparameters` and of the task, and their source (paper and table, or repository and file).

    They are for some benchmarks or tasks with a head (empty: all), on models with hidden sizes within `widths`.
    """

    systems: tuple[str, ...]
    benchmarks: tuple[str, ...] = ()
    head: str = ""
    widths: tuple[int, int] = ALL_WIDTHS
    settings: Mapping[str, Any]
    task_fields: Mapping[str, Any] = field(default_factory=dict)
    source: str

    def fits(self, benchmark: str, head: str, width: int) -> bool:
        """Return whether the row is for this benchmark ("" is none), head and hidden size."""
        of_task = (not self.benchmarks or benchmark in self.benchmarks) and self.head in ("", head)
        return of_task and self.widths[0] <= width <= self.widths[1]


# Examples in the published training files.
_TRAINING_EXAMPLES = {
    "cola": 8_551, "sst-2": 67_349, "mrpc": 3_668, "sts-b": 5_749, "qqp": 363_846, "mnli": 392_702, "qnli": 104_743,
    "rte": 2_490, "wnli": 635, "squad-1.1": 87_599, "squad-2.0": 130_319, "race": 87_866,
}  # fmt: skip

# "[systems] source", then their rows: for what (benchmarks, "head:NAME", models of a size, "all"), epochs, batch size,
# peak learning rate, maximum length ("-" where the source does not say), further settings, "|" and the row's own
# source. "steps=N" becomes epochs, so that it means the same for a part of the data: steps x batch / training examples.
_TABLE = """
[bert] Devlin et al. 2019, 4.1 and A.3; google-research/bert run_classifier.py
# The paper takes the best of {5, 4, 3, 2}e-5 on the development set; this is the middle of its grid.
all                 3    32  3e-5    128  warmup_share=0.1
# The paper does not say a length.
head:span           3    32  5e-5    384    | Devlin et al. 2019, 4.2; google-research/bert run_squad.py
head:choice         3    16  2e-5    -      | Devlin et al. 2019, 4.4 (SWAG)

# On benchmarks that BERT's paper has not, the settings of others, which apply to all systems without their own.
squad-2.0           2    48  5e-5    384    | Devlin et al. 2019, 4.3; google-research/bert run_squad.py
race                4    16  1e-5    512    | Liu et al. 2019, table 10: RoBERTa's, the nearest with a source
dream+c3            8    24  2e-5    512    | nlpdata/dream and nlpdata/c3 README: their authors' fine-tuning of BERT
cmrc2018+drcd       2    32  3e-5    512    | Cui et al. 2021, table IV; batch: CLUE's run_mrc_cmrc2018.sh
[bert] Cui et al. 2021, table IV; batch: BERT's
chnsenticorp        3    32  2e-5    256
lcqmc               3    32  2e-5    128
xnli                2    32  3e-5    128
ocnli               3    32  2e-5    128    | Cui et al. 2021, table IV and CLUEbenchmark/OCNLI README; batch: BERT's
afqmc               3    16  2e-5    128    | CLUEbenchmark/CLUE run_classifier_afqmc.sh, for BERT
weibo-ner           3    16  5e-5    256    | no source: ERNIE 1.0's for MSRA-NER (its scripts)
[bert] CLUEbenchmark/CLUE run_classifier_tnews.sh; Cui et al. 2021, table IV, but for the batch
tnews               3    16  2e-5    128

[roberta] facebookresearch/fairseq examples/roberta/config/finetuning; Liu et al. 2019, table 10
# pooler_dropout stays at its default of 0 in all of these files.
all                 10   16  1e-5    512  warmup_share=0.06 schedule=linear weight_decay=0.1 decayed=all\
 betas=[0.9,0.98] bias_correction=true clip_norm=0.0 head_dropout=0.0
[roberta] facebookresearch/fairseq examples/roberta/config/finetuning
cola                -    16  1e-5    -    warmup=320/5336 | /cola.yaml
mnli                -    32  1e-5    -    warmup=7432/123873 | /mnli.yaml
mrpc                -    16  1e-5    -    warmup=137/2296 | /mrpc.yaml
qnli                -    32  1e-5    -    warmup=1986/33112 | /qnli.yaml
# A quarter of the steps, not 6 %: so the file has it.
qqp                 -    32  1e-5    -    warmup=28318/113272 | /qqp.yaml
rte                 -    16  2e-5    -    warmup=122/2036 | /rte.yaml
sst-2               -    32  1e-5    -    warmup=1256/20935 | /sst_2.yaml
sts-b               -    16  2e-5    -    warmup=214/3598 | /sts_b.yaml
[roberta] Liu et al. 2019, table 10 (SQuAD, RACE)
head:span           2    48  1.5e-5  512  weight_decay=0.01
head:choice         4    16  1e-5    512  weight_decay=0.1

[albert] Lan et al. 2020, table 14
all                 -    -   -       512  hidden_dropout=0.0 attention_dropout=0.0 head_dropout=0.1
cola                -    16  1e-5    512  hidden_dropout=0.0 attention_dropout=0.0 steps=5336  warmup=320/5336
sts-b               -    16  2e-5    512  hidden_dropout=0.0 attention_dropout=0.0 steps=3598  warmup=214/3598
sst-2               -    32  1e-5    512  hidden_dropout=0.0 attention_dropout=0.0 steps=20935 warmup=1256/20935
mnli                -    128 3e-5    512  hidden_dropout=0.0 attention_dropout=0.0 steps=10000 warmup=1000/10000
qnli                -    32  1e-5    512  hidden_dropout=0.0 attention_dropout=0.0 steps=33112 warmup=1986/33112
qqp                 -    128 5e-5    512  hidden_dropout=0.1 attention_dropout=0.1 steps=14000 warmup=1000/14000
rte                 -    32  3e-5    512  hidden_dropout=0.1 attention_dropout=0.1 steps=800   warmup=200/800
mrpc                -    32  2e-5    512  hidden_dropout=0.0 attention_dropout=0.0 steps=800   warmup=200/800
wnli                -    16  2e-5    512  hidden_dropout=0.1 attention_dropout=0.1 steps=2000  warmup=250/2000
squad-1.1           -    48  5e-5    384  hidden_dropout=0.0 attention_dropout=0.0 steps=3649  warmup=365/3649
squad-2.0           -    48  3e-5    512  hidden_dropout=0.0 attention_dropout=0.0 steps=8144  warmup=814/8144
# The models' second version must have 1e-5 and no dropout here, or it diverges (albert: README.md:46).
race                -    32  2e-5    512  hidden_dropout=0.1 attention_dropout=0.1 steps=12000 warmup=1000/12000

[electra] google-research/electra configure_finetuning.py:41-162
all                 -    -   1e-4    -    layer_decay=0.8 schedule=linear_product
# Its code knows GLUE, chunking and SQuAD; other tasks keep their own epochs, batch and length.
cola+sst-2+mrpc+sts-b+qqp+mnli+mnli-mm+qnli+rte+wnli  3  32  -  128
rte+sts-b           10   -   -       -
mrpc+sts-b          -    -   -       -    double_unordered=true
head:span           2    32  -       512
head:token          -    -   -       256
(small)             -    -   3e-4    -    weight_decay=0.0 | Clark et al. 2020, appendix B
(large)             -    -   5e-5    -    layer_decay=0.9 | google-research/electra configure_finetuning.py
# Targets of 0 to 5 are trained as 0 to 1.
sts-b               -    -   -       -    task.scale=5.0 | google-research/electra configure_finetuning.py: STS-B

[spanbert] Joshi et al. 2020, appendix B; facebookresearch/SpanBERT README
all                 -    -   2e-5    -    warmup_share=0.1
# GLUE and TACRED.
head:sequence       10   32  -       -
cola                4    -   -       -
head:span           4    32  2e-5    512

# For all of the paper's Chinese models; RoBERTa-wwm is a BERT with another training. The rates in the README of
# BERT-wwm are the same where it has them.
[macbert] Cui et al. 2021, table IV
cmrc2018+drcd       2    -   3e-5    512
chnsenticorp        3    -   2e-5    256
tnews+lcqmc+ocnli   3    -   2e-5    128
xnli                2    -   3e-5    128
[bert-wwm+roberta-wwm] Cui et al. 2021, table IV; ymcui/Chinese-BERT-wwm README
cmrc2018+drcd       2    -   3e-5    512
chnsenticorp        3    -   2e-5    256
tnews+lcqmc+ocnli   3    -   2e-5    128
xnli                2    -   3e-5    128

[ernie] PaddlePaddle/ERNIE (2f2fe7a) ERNIE/script
# No warmup; Paddle's epsilon.
all                 -    -   5e-5    -    warmup_share=0.0 eps=1e-8
# MSRA-NER, the one tagging task of the scripts.
head:token          3    16  5e-5    256  weight_decay=0.01
# 8192 tokens a batch: at least 16 pairs of 512.
xnli                3    16  1e-4    512  weight_decay=0.01
lcqmc               3    32  2e-5    128  weight_decay=0.0
chnsenticorp        10   24  5e-5    256  weight_decay=0.01
[ernie] ymcui/Chinese-BERT-wwm README (best rates for ERNIE)
cmrc2018+drcd       -    -   8e-5    -

# Its published config.json; no other settings of its fine-tuning are published.
[distilbert+distilroberta] huggingface/transformers-research-projects distillation (seq_classif_dropout, qa_dropout)
head:sequence       -    -   -       -    head_dropout=0.2
head:choice         -    -   -       -    head_dropout=0.2
head:span           -    -   -       -    head_dropout=0.1
"""


def _parsed(table: str) -> Iterator[PublishedSettings]:
    systems = source = ""
    for line in filter(None, table.replace("\\\n", "").split("\n")):
        if line.startswith("["):
            systems, _, source = line[1:].partition("] ")
        elif not line.startswith("#"):
            line, _, own_source = line.partition(" | ")
            where, *numbers, more = [*line.split(maxsplit=5), ""][:6]
            named = zip(("epochs", "batch_size", "learning_rate", "max_length"), map(_value, numbers), strict=True)
            settings = {name: value for name, value in named if value != "-"}
            for written in more.split():
                name, _, value = written.partition("=")
                settings[name] = _value(value)
            if "warmup" in settings:
                warmup, total = map(int, settings.pop("warmup").split("/"))
                settings["warmup_share"] = round(warmup / total, 3)
            if "steps" in settings:
                examples = settings.pop("steps") * settings["batch_size"]
                settings["epochs"] = round(examples / _TRAINING_EXAMPLES[where], 2)
            head = where.removeprefix("head:") if where.startswith("head:") else ""
            of_all = where == "all" or where in _WIDTHS or head
            yield PublishedSettings(
                systems=tuple(systems.split("+")),
                benchmarks=() if of_all else tuple(where.split("+")),
                head=head,
                widths=_WIDTHS.get(where, ALL_WIDTHS),
                settings={field: value for field, value in settings.items() if not field.startswith("task.")},
                task_fields={field[5:]: value for field, value in settings.items() if field.startswith("task.")},
                source=source + own_source if own_source.startswith("/") else own_source or source,
            )


def _value(written: str) -> Any:
    try:
        value = json.loads(written)
    except ValueError:
        return written
    return tuple(value) if isinstance(value, list) else value


PUBLISHED = tuple(_parsed(_TABLE))
"""All rows."""

RATES_AT_WIDTH_768: Mapping[str, float] = MappingProxyType({"bert": 5e-5, "electra": 1e-4})
"""From where the rate of narrower models rises in proportion to 1 / width; BERT's for systems that have none.

BERT: the top of its grid (Devlin et al. 2019, A.3); at width 128 this is 3e-4, the top of the grid of the small models
(google-research/bert README; Turc et al. 2019). ELECTRA: its base rate; at width 256 this is 3e-4, its small model's.
"""
