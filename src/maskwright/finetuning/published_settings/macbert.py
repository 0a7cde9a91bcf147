"""MacBERT and BERT-wwm: Cui et al. 2021, table IV."""

from maskwright.finetuning.published_settings.row import Published

_MACBERT_ROWS = (
    # benchmark, length, passes, rate
    ("cmrc2018", 512, 2.0, 3e-5),
    ("drcd", 512, 2.0, 3e-5),
    ("chnsenticorp", 256, 3.0, 2e-5),
    ("tnews", 128, 3.0, 2e-5),
    ("xnli", 128, 2.0, 3e-5),
    ("lcqmc", 128, 3.0, 2e-5),
    ("ocnli", 128, 3.0, 2e-5),
)
# The table is for all of the paper's Chinese models; the rates of BERT-wwm's own README are the same where it has them.
ROWS = tuple(
    Published(
        system=system,
        benchmarks=(benchmark,),
        settings={"max_length": length, "epochs": epochs, "learning_rate": rate},
        source="Cui et al. 2021, table IV" + ("; ymcui/Chinese-BERT-wwm README" if system == "bert-wwm" else ""),
    )
    for system in ("macbert", "bert-wwm")
    for benchmark, length, epochs, rate in _MACBERT_ROWS
)
