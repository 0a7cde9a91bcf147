"""`maskwright quickstart`: train on text that is already on the machine, then fill masks."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from maskwright.inference.fill_mask import MaskPrediction
from maskwright.inference.model import load
from maskwright.reporting.reporter import Reporter
from maskwright.training.pretrain import RunResult, pretrain

RECIPE = "maskwright/tiny"
MINUTES = 3.5
SETTINGS = (
    "training.phases=[{share: 1.0, max_length: 32}]",
    "objectives=[{kind: mlm, initial_bias: frequencies}]",
    "format=doc_sentences",
)
"""Docstrings are short, and a run of minutes learns more from many short sequences (LOG.md)."""
PROMPTS = (
    "Return the [MASK] of the array.",
    "If the file does not [MASK], an error is raised.",
    "The [MASK] value is None.",
    "This function [MASK] a list of strings.",
    "Compute the mean and the standard [MASK] of the data.",
    "Whether or [MASK] to use the cache.",
)
"""Sentences like those in docstrings."""


@dataclass(frozen=True, slots=True)
class Quickstart:
    """The run, and for each of `PROMPTS` the best tokens of its mask; none if the run was interrupted."""

    run: RunResult
    filled: list[list[MaskPrediction]]

    def to_json(self) -> dict[str, Any]:
        filled = [
            {"text": prompt, "best": [asdict(best) for best in tokens]}
            for prompt, tokens in zip(PROMPTS, self.filled, strict=False)
        ]
        return {"run": self.run.to_json(), "filled": filled}


def quickstart(
    *,
    out: str | Path = "runs/quickstart",
    minutes: float = MINUTES,
    recipe: str = RECIPE,
    reporter: Reporter | None = None,
) -> Quickstart:
    """Train on the docstrings of this Python installation and fill some masks.

    Args:
        out: Run directory.
        minutes: Minutes of training; the first run needs about one more for preparation.
        recipe: Name of the recipe to train.
        reporter: Where messages go; None for standard error.
    """
    run = pretrain("docstrings", out=out, recipe=recipe, minutes=minutes, set=SETTINGS, reporter=reporter)
    if not run.finished:
        return Quickstart(run, [])
    return Quickstart(run, [best for (best,) in load(run.folder).fill_mask(PROMPTS, top_k=3)])
