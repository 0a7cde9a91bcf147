"""English beyond GLUE: questions about texts, multiple choice, entities."""

from types import MappingProxyType

from maskwright.finetuning.benchmark import Benchmark
from maskwright.finetuning.benchmark_table.common import BERT, ENTITIES
from maskwright.finetuning.readers import ReadOptions

ROWS = (
    Benchmark(
        name="squad-1.1",
        title="SQuAD 1.1",
        kind="question_answering",
        language="en",
        folders=("squad", "SQuAD", "squad1"),
        files={"train": ("train-v1.1.json",), "dev": ("dev-v1.1.json",)},
        options=ReadOptions(format="squad"),
        task_fields=MappingProxyType({"metric": "squad"}),
        epochs=3.0,  # BERT, 4.2
        learning_rate=5e-5,  # BERT, 4.2
        batch_size=32,  # BERT, 4.2
        max_length=384,  # google-research/bert run_squad.py
    ),
    Benchmark(
        name="squad-2.0",
        title="SQuAD 2.0",
        kind="question_answering",
        language="en",
        folders=("squad", "SQuAD", "squad2"),
        files={"train": ("train-v2.0.json",), "dev": ("dev-v2.0.json",)},
        options=ReadOptions(format="squad"),
        task_fields=MappingProxyType({"metric": "squad_v2"}),
        epochs=2.0,  # BERT, 4.3
        learning_rate=5e-5,  # BERT, 4.3
        batch_size=48,  # BERT, 4.3
        max_length=384,  # google-research/bert run_squad.py
    ),
    Benchmark(
        name="race",
        title="RACE",
        kind="multiple_choice",
        language="en",
        folders=("RACE", "race"),
        files={
            "train": ("train", "train.jsonl"),
            "dev": ("dev", "dev.jsonl"),
            "test": ("test", "test.jsonl"),
        },
        options=ReadOptions(format="race"),
        metrics=("accuracy",),
        # BERT has no RACE; these are RoBERTa's (Liu et al. 2019, table 10), as the nearest system with a source.
        epochs=4.0,
        learning_rate=1e-5,
        batch_size=16,
        max_length=512,
    ),
    Benchmark(
        name="dream",
        title="DREAM",
        kind="multiple_choice",
        language="en",
        folders=("dream", "DREAM", "dream_mc", "data"),
        files={
            "train": ("train.json", "race_style/train.jsonl", "train.jsonl"),
            "dev": ("dev.json", "race_style/dev.jsonl", "dev.jsonl"),
            "test": ("test.json", "race_style/test.jsonl", "test.jsonl"),
        },
        metrics=("accuracy",),
        # nlpdata/dream README, "BERT baseline": its authors' fine-tuning of BERT.
        epochs=8.0,
        learning_rate=2e-5,
        batch_size=24,
        max_length=512,
    ),
    Benchmark(
        name="swag",
        title="SWAG",
        kind="multiple_choice",
        language="en",
        folders=("swag", "SWAG", "swagaf", "data"),
        files={"train": ("train.csv",), "dev": ("val.csv", "dev.csv"), "test": ("test.csv",)},
        options=ReadOptions(
            text="sent1",
            text2="sent2",
            choices=("ending0", "ending1", "ending2", "ending3"),
            label="label",
            first_option=0,
        ),
        metrics=("accuracy",),
        epochs=3.0,  # BERT, 4.4
        learning_rate=2e-5,  # BERT, 4.4
        batch_size=16,  # BERT, 4.4
        max_length=128,  # as BERT: the paper does not say
    ),
    Benchmark(
        name="conll-2003",
        title="CoNLL-2003 NER",
        kind="tagging",
        language="en",
        folders=("conll2003", "conll-2003", "CoNLL-2003", "CoNLL2003"),
        files={
            "train": ("eng.train", "train.txt", "train.conll"),
            "dev": ("eng.testa", "valid.txt", "dev.txt", "testa.txt", "dev.conll"),
            "test": ("eng.testb", "test.txt", "testb.txt", "test.conll"),
        },
        options=ReadOptions(format="conll", text="1", label="-1"),
        metrics=ENTITIES,
        **BERT,  # BERT, 5.3 and A.3: the grid; batch and rate are not said for each task
    ),
    Benchmark(
        name="wnut17",
        title="WNUT-17 emerging entities",
        kind="tagging",
        language="en",
        folders=("wnut17", "wnut17_ner", "emerging_entities_17"),
        files={
            "train": ("wnut17train.conll", "train.conll", "train.txt"),
            "dev": ("emerging.dev.conll", "dev.conll", "dev.txt"),
            "test": ("emerging.test.annotated", "test.conll", "test.txt"),
        },
        options=ReadOptions(format="conll", text="1", label="2"),
        metrics=ENTITIES,
        **BERT,  # as BERT
    ),
)
