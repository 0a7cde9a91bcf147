"""ALBERT: Lan et al. 2020, table 14, its steps told as passes."""

from maskwright.finetuning.published_settings.row import Published, passes

ROWS = (
    Published(
        system="albert",
        settings={"max_length": 512, "hidden_dropout": 0.0, "attention_dropout": 0.0, "head_dropout": 0.1},
        source="Lan et al. 2020, table 14",
    ),
    *(
        Published(
            system="albert",
            benchmarks=(benchmark,),
            settings={
                "learning_rate": rate,
                "batch_size": batch,
                "hidden_dropout": dropout,
                "attention_dropout": dropout,
                "head_dropout": 0.1,
                "epochs": passes(benchmark, steps, batch),
                "warmup_share": round(warmup / steps, 3),
                "max_length": length,
            },
            source="Lan et al. 2020, table 14",
        )
        for benchmark, rate, batch, dropout, steps, warmup, length in (
            ("cola", 1e-5, 16, 0.0, 5336, 320, 512),
            ("sts-b", 2e-5, 16, 0.0, 3598, 214, 512),
            ("sst-2", 1e-5, 32, 0.0, 20935, 1256, 512),
            ("mnli", 3e-5, 128, 0.0, 10000, 1000, 512),
            ("qnli", 1e-5, 32, 0.0, 33112, 1986, 512),
            ("qqp", 5e-5, 128, 0.1, 14000, 1000, 512),
            ("rte", 3e-5, 32, 0.1, 800, 200, 512),
            ("mrpc", 2e-5, 32, 0.0, 800, 200, 512),
            ("wnli", 2e-5, 16, 0.1, 2000, 250, 512),
            ("squad-1.1", 5e-5, 48, 0.0, 3649, 365, 384),
            ("squad-2.0", 3e-5, 48, 0.0, 8144, 814, 512),
            # The models' second version must have 1e-5 and no dropout here, or it diverges (albert: README.md:46).
            ("race", 2e-5, 32, 0.1, 12000, 1000, 512),
        )
    ),
)
