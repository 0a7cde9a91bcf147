"""What tags of words follow: said, not changed; what is no tag among tags of entities is refused."""

import re
from collections import Counter
from collections.abc import Callable, Sequence

from maskwright.core.errors import DataError, nearest
from maskwright.finetuning.metrics.entities import is_entity_tag, mark_entities, scheme_of

_SHOWN = 8
# B-PER as it may be miswritten: b-PER, B_PER, B:PER.
_LOOSE = re.compile(r"([BIESLUM])[-_.:/\u2010-\u2015]([^\W\d_].*)", re.IGNORECASE)


def check_tags(sentences: Sequence[Sequence[str]], place: Callable[[str], str]) -> None:
    """Refuse tags that are none among tags of entities: each would be a class of its own, and mark no entity.

    Args:
        sentences: The tags of each.
        place: Says where a tag stands first.

    Raises:
        DataError: With the place of the first one.
    """
    counts = Counter(tag for tags in sentences for tag in tags)
    if not mark_entities(counts) or not (wrong := [tag for tag in counts if not is_entity_tag(tag)]):
        return
    tag = wrong[0]
    all_of_them = f" are none: {_listed(wrong)}" if len(wrong) > 1 else ""
    marked = sum(counts[tag] for tag in wrong)
    known = [tag for tag in counts if is_entity_tag(tag)]
    guess = _meant(tag) or (f"B-{tag}" if f"B-{tag}" in known else nearest(tag, known))
    raise DataError(
        f"{place(tag)}: {tag!r} is not a tag of entities, as others of the file are; {marked:,} of {counts.total():,} "
        f"tags{all_of_them}",
        allowed='"O", or B, I, E, S, L, U or M with a hyphen and a type, e.g. "B-PER"',
        todo=" ".join(filter(None, [f"Did you mean {guess!r}?" if guess else "", "Correct the tag in the file."])),
    )


def _meant(tag: str) -> str | None:
    """Return how a tag of entities would be written that is only miswritten, "B-PER" of "b_PER"; else None."""
    if tag in ("o", "0"):
        return "O"
    match = _LOOSE.fullmatch(tag)
    return f"{match[1].upper()}-{match[2]}" if match and not is_entity_tag(tag) else None


def scheme_note(sentences: Sequence[Sequence[str]]) -> str:
    """Say which scheme of entities the tags of a file follow, if any.

    Args:
        sentences: The tags of each.
    """
    counts = Counter(tag for tags in sentences for tag in tags)
    shown = _listed([tag for tag, _ in counts.most_common()])
    try:
        scheme = scheme_of(sentences)
    except DataError as error:
        if mark_entities(counts):
            return f"tags of no known scheme ({shown}): {error.problem}"
        note = f"{len(counts)} tags that mark no entities as BIO and its like do: {shown}"
        miswritten = next((tag for tag in counts if tag != "0" and _meant(tag)), None) if "O" in counts else None
        return f"{note}; if they should, write {_meant(miswritten)!r} for {miswritten!r}" if miswritten else note
    if scheme in ("BIO", "IO"):
        # In BIO an I without its beginning is an error of the file, and ends up in no entity.
        loose = sum(_goes_on(tag) and not _same(before, tag) for tags in sentences for before, tag in _pairs(tags))
        if scheme == "BIO" and loose:
            return f"tags of scheme BIO ({shown}); {loose} tags I follow no tag of their type and mark no entity"
    return f"tags of scheme {scheme} ({shown})"


def _listed(tags: Sequence[str]) -> str:
    return ", ".join(tags[:_SHOWN]) + (", ..." if len(tags) > _SHOWN else "")


def _pairs(tags: Sequence[str]) -> list[tuple[str, str]]:
    return list(zip(("O", *tags[:-1]), tags, strict=True))


def _goes_on(tag: str) -> bool:
    return tag == "I" or tag.startswith("I-")


def _same(before: str, tag: str) -> bool:
    return before != "O" and before[1:] == tag[1:]
