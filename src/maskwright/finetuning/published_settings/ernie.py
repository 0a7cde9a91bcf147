"""ERNIE 1.0: the scripts of its code."""

from maskwright.finetuning.published_settings.row import Published

_ERNIE_SCRIPTS = "PaddlePaddle/ERNIE (2f2fe7a) ERNIE/script"
ROWS = (
    # Its scripts have no warm-up; epsilon is Paddle's default.
    Published(
        system="ernie", settings={"warmup_share": 0.0, "learning_rate": 5e-5, "eps": 1e-8}, source=_ERNIE_SCRIPTS
    ),
    # MSRA-NER, the one tagging task of the scripts.
    Published(
        system="ernie",
        heads=("token",),
        settings={"batch_size": 16, "learning_rate": 5e-5, "epochs": 3.0, "weight_decay": 0.01, "max_length": 256},
        source=_ERNIE_SCRIPTS,
    ),
    *(
        Published(
            system="ernie",
            benchmarks=(benchmark,),
            settings={
                "batch_size": batch,
                "learning_rate": rate,
                "epochs": epochs,
                "weight_decay": decay,
                "max_length": length,
            },
            source=_ERNIE_SCRIPTS,
        )
        for benchmark, batch, rate, epochs, decay, length in (
            # The script counts 8192 tokens a batch, of which 512 are the longest pair: 16 at least.
            ("xnli", 16, 1e-4, 3.0, 0.01, 512),
            ("lcqmc", 32, 2e-5, 3.0, 0.0, 128),
            ("chnsenticorp", 24, 5e-5, 10.0, 0.01, 256),
        )
    ),
    Published(
        system="ernie",
        benchmarks=("cmrc2018", "drcd"),
        settings={"learning_rate": 8e-5},
        source="ymcui/Chinese-BERT-wwm README (best rates for ERNIE)",
    ),
)
