"""SpanBERT: Joshi et al. 2020, appendix B, and its README."""

from maskwright.finetuning.published_settings.row import Published

ROWS = (
    Published(
        system="spanbert",
        settings={"learning_rate": 2e-5, "warmup_share": 0.1},
        source="Joshi et al. 2020, appendix B; facebookresearch/SpanBERT README",
    ),
    # GLUE and TACRED, at a length of 128: that is for these, and stands in GLUE's rows.
    Published(
        system="spanbert",
        heads=("sequence",),
        settings={"epochs": 10.0, "batch_size": 32},
        source="Joshi et al. 2020, appendix B; facebookresearch/SpanBERT README",
    ),
    Published(
        system="spanbert", benchmarks=("cola",), settings={"epochs": 4.0}, source="Joshi et al. 2020, appendix B"
    ),
    Published(
        system="spanbert",
        heads=("span",),
        settings={"epochs": 4.0, "batch_size": 32, "learning_rate": 2e-5, "max_length": 512},
        source="Joshi et al. 2020, appendix B; facebookresearch/SpanBERT README",
    ),
)
