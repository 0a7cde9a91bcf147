"""RoBERTa: fairseq's files for GLUE, Liu et al. 2019, table 10 beyond."""

from maskwright.finetuning.published_settings.row import Published

_ROBERTA_GLUE = "facebookresearch/fairseq examples/roberta/config/finetuning"
ROWS = (
    Published(
        system="roberta",
        settings={
            "epochs": 10.0,
            "batch_size": 16,
            "learning_rate": 1e-5,
            "warmup_share": 0.06,
            "schedule": "linear",
            "weight_decay": 0.1,
            "decayed": "all",
            "betas": (0.9, 0.98),
            "bias_correction": True,
            # pooler_dropout stays at its default of 0 in all of these files.
            "head_dropout": 0.0,
            "clip_norm": 0.0,
            "max_length": 512,
        },
        source=f"{_ROBERTA_GLUE}; Liu et al. 2019, table 10",
    ),
    *(
        Published(
            system="roberta",
            benchmarks=(benchmark,),
            settings={"learning_rate": rate, "batch_size": batch, "warmup_share": round(warmup / steps, 3)},
            source=f"{_ROBERTA_GLUE}/{file}.yaml",
        )
        for benchmark, file, rate, batch, steps, warmup in (
            ("cola", "cola", 1e-5, 16, 5336, 320),
            ("mnli", "mnli", 1e-5, 32, 123873, 7432),
            ("mrpc", "mrpc", 1e-5, 16, 2296, 137),
            ("qnli", "qnli", 1e-5, 32, 33112, 1986),
            # A quarter of the steps warms up here, not 6 %: so the file has it.
            ("qqp", "qqp", 1e-5, 32, 113272, 28318),
            ("rte", "rte", 2e-5, 16, 2036, 122),
            ("sst-2", "sst_2", 1e-5, 32, 20935, 1256),
            ("sts-b", "sts_b", 2e-5, 16, 3598, 214),
        )
    ),
    Published(
        system="roberta",
        heads=("span",),
        settings={"epochs": 2.0, "batch_size": 48, "learning_rate": 1.5e-5, "weight_decay": 0.01, "max_length": 512},
        source="Liu et al. 2019, table 10 (SQuAD)",
    ),
    Published(
        system="roberta",
        heads=("choice",),
        settings={"epochs": 4.0, "batch_size": 16, "learning_rate": 1e-5, "weight_decay": 0.1, "max_length": 512},
        source="Liu et al. 2019, table 10 (RACE)",
    ),
)
