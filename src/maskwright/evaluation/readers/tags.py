"""What tags of words follow: said, not changed."""

from collections import Counter
from collections.abc import Sequence

from maskwright.core.errors import DataError
from maskwright.evaluation.metrics.entities import scheme_of

_SHOWN = 8


def scheme_note(sentences: Sequence[Sequence[str]]) -> str:
    """Say which scheme of entities the tags of a file follow, if any.

    Args:
        sentences: The tags of each.
    """
    counts = Counter(tag for tags in sentences for tag in tags)
    shown = ", ".join(tag for tag, _ in counts.most_common(_SHOWN)) + (", ..." if len(counts) > _SHOWN else "")
    try:
        scheme = scheme_of(sentences)
    except DataError:
        return f"{len(counts)} tags that mark no entities as BIO and its like do: {shown}"
    if scheme in ("BIO", "IO"):
        # In BIO an I without its beginning is an error of the file, and ends up in no entity.
        loose = sum(_goes_on(tag) and not _same(before, tag) for tags in sentences for before, tag in _pairs(tags))
        if scheme == "BIO" and loose:
            return f"tags of scheme BIO ({shown}); {loose} tags I follow no tag of their type and mark no entity"
    return f"tags of scheme {scheme} ({shown})"


def _pairs(tags: Sequence[str]) -> list[tuple[str, str]]:
    return list(zip(("O", *tags[:-1]), tags, strict=True))


def _goes_on(tag: str) -> bool:
    return tag == "I" or tag.startswith("I-")


def _same(before: str, tag: str) -> bool:
    return before != "O" and before[1:] == tag[1:]
