"""What a fine-tuned model took over from the pretrained one, what is new in it, and what was left: said in words."""

from collections.abc import Collection, Iterable

from maskwright.core.types import HeadKind
from maskwright.huggingface.families.base import TaskHead
from maskwright.training.existing import ExistingModel


def taken_over(
    existing: ExistingModel,
    head: HeadKind,
    row: TaskHead,
    *,
    taken: Collection[str],
    fresh: Collection[str],
    left: Collection[str],
) -> list[str]:
    """Say what a model was made of, a line each.

    Args:
        existing: The pretrained model.
        head: What the new model's head scores.
        row: How the family's class computes it.
        taken: Names of the weights taken over.
        fresh: Names of the weights drawn anew.
        left: Names of the pretrained model's weights that were left.
    """
    left_parts = _parts(left)
    if existing.task is not None and existing.task.kind == head and any("head." in name for name in fresh):
        left_parts = [*left_parts, f"its head for {', '.join(existing.task.labels)}"]
    return [
        f"taken from {existing.name}: {', '.join(_parts(taken))}",
        *([f"new: {', '.join(_parts(fresh))} (of {row.architecture})"] if fresh else []),
        *([f"left: {', '.join(left_parts)}"] if left_parts else []),
    ]


def _parts(names: Iterable[str]) -> list[str]:
    return sorted({_part(name) for name in names})


def _part(name: str) -> str:
    tower, _, rest = name.partition(".")
    if tower == "head":
        return "head"
    if tower == "heads":
        return f"head {rest.partition('.')[0]!r}"
    if "_blocks." in rest:
        return "layers"
    return "pooler" if rest.startswith("pooler.") else "embeddings"
