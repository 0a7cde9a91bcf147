"""maskwright's recipe for a small sentence embedder: a student of a larger embedder's vectors, from unlabeled text.

It begins with layers of the teacher, matches its vectors alone and reads mostly short texts, as trials with students of
all-MiniLM-L6-v2 favor (LOG.md, "a narrow student that begins with its teacher's layers"). Nothing is masked.
Needs a teacher, `--teacher DIR_OR_HUB_NAME`; tokenizer, vocabulary and pooling are the teacher's.
"""

from collections.abc import Iterator

from maskwright.pretext.objectives import SentenceVectors
from maskwright.pretext.replacement import MaskRandomKeep
from maskwright.recipes.optimization import LengthPhase
from maskwright.recipes.recipe import MaskSampling, Recipe, Teacher
from maskwright.recipes.sizes import Size, at_size
from maskwright.recipes.systems import bert, distilbert

PAPER = "objective: Reimers and Gurevych 2020, arXiv:2004.09813; constants: LOG.md, 2026-11-27"

SIZES: tuple[tuple[str, Size], ...] = (
    ("tiny", Size(3, 128, 2)), ("mini", Size(3, 256, 4)), ("small", Size(6, 256, 4)), ("medium", Size(6, 384, 6)),
)  # fmt: skip


def recipes() -> Iterator[Recipe]:
    """Yield students of three and six layers; a run changes the heads to the teacher's size."""
    for name, size in SIZES:
        yield Recipe(
            name=f"embedder/{name}",
            summary="not published: a small sentence embedder, distilled from a larger one",
            paper=PAPER,
            family="distilbert",
            tokenizer=bert.UNCASED,
            format=distilbert.FORMAT,
            masking=distilbert.MASKING,
            replacement=MaskRandomKeep(mask=0, random=0, keep=1),
            masks=MaskSampling(copies=None),
            objectives=(SentenceVectors(),),
            encoder=at_size(distilbert.ENCODER, size),
            teacher=Teacher(model="", initialize="layers"),
            training=distilbert.TRAINING.replace(
                batch_sequences=64,
                phases=(
                    LengthPhase(share=0.65, max_length=16),
                    LengthPhase(share=0.25, max_length=64),
                    LengthPhase(share=0.1, max_length=256),
                ),
            ),
        )
