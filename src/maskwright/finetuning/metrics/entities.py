"""Entities told by tags, and how many are found: both ends and the type must be right (strict), by nervaluate.

What counts as an entity is decided here, by the scheme that the labeled file follows, so that malformed predictions
("I-PER" after "O" in BIO) are no entities. The scores are then those of seqeval in its mode "strict"; its other mode,
and conlleval of CoNLL-2003, would take such a tag for the beginning of an entity.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from maskwright.core.errors import DataError
from maskwright.finetuning.metrics.scores import check_pairs, scoring_library

TagScheme = Literal["IO", "BIO", "IOBES", "BILOU", "BMES"]
"""How tags mark entities. "BIO" (IOB2): B begins, I goes on. "IOBES": moreover E ends, S stands alone; "BILOU" says L
and U for E and S, "BMES", usual in Chinese, M for I. "IO": I alone, an entity begins where the type changes; a B, which
the older IOB1 writes between two neighbours of one type, begins one as well."""

_AS_IOBES = {"L": "E", "U": "S", "M": "I"}
_LETTERS: dict[TagScheme, str] = {"IO": "IB", "BIO": "BI", "IOBES": "BIES", "BILOU": "BILU", "BMES": "BMES"}
_NO_TYPE = "_"
_MARKS = re.compile("[BIESLUM]-.")


@dataclass(frozen=True, slots=True)
class Entity:
    """Words [start, end) of a sentence with their type.

    Attributes:
        type: E.g. "PER"; "_" for tags without one ("B", "I").
        start: Its first word.
        end: One past its last word.
    """

    type: str
    start: int
    end: int


def mark_entities(tags: Iterable[str]) -> bool:
    """Whether the different tags of a file are those of entities, rather than parts of speech: O beside B-PER."""
    tags = set(tags)
    return "O" in tags and any(map(_MARKS.match, tags))


def is_entity_tag(tag: str) -> bool:
    """Whether a tag is written as those of entities are, in any scheme: "O", "B-PER", "B"."""
    try:
        _parts(tag)
    except DataError:
        return False
    return True


def scheme_of(sentences: Sequence[Sequence[str]]) -> TagScheme:
    """Tell the scheme of labeled sentences by the tags that they use.

    Example:
        >>> scheme_of([["B-PER", "I-PER", "O"]])
        'BIO'
        >>> scheme_of([["I-PER", "I-PER", "O"]])
        'IO'

    Raises:
        DataError: If a tag is none, or the tags are of no scheme known.
    """
    counts = Counter[str]()
    begun = False  # whether a B begins what I would not
    for tags in sentences:
        before = ("O", "")
        for tag in tags:
            letter, type_ = after = _parts(tag)
            counts[letter] += 1
            begun = begun or (letter == "B" and (before[0] == "O" or before[1] != type_))
            before = after
    letters = counts.keys() - {"O"}
    if letters <= {"I", "B"}:
        return "BIO" if begun else "IO"
    # I and E without a B are yet another scheme (IOE), by whose tags these would tell of no entity.
    if letters <= set(_LETTERS["IOBES"]) and ("B" in letters or letters == {"S"}):
        return "IOBES"
    if letters <= set(_LETTERS["BILOU"]) and ("B" in letters or letters == {"U"}):
        return "BILOU"
    if letters <= set(_LETTERS["BMES"]) and "B" in letters:
        return "BMES"
    rarest = min(letters, key=lambda letter: (counts[letter], letter))
    raise DataError(
        f"tags begin with the letters {', '.join(sorted(letters))}, which no scheme of tags has together "
        f"({rarest} is the rarest: {counts[rarest]:,} of {counts.total():,} tags)",
        allowed="B and I; I alone; B, I, E and S; B, M, E and S; B, I, L and U; each "
        "followed by a hyphen and a type; and O",
        todo="Correct the tags in the file.",
    )


def type_of(tag: str) -> str:
    """Return the type of entity that a tag other than "O" marks: "PER" of "B-PER", "_" of "B"."""
    return tag[2:] or _NO_TYPE


def entities_of(tags: Sequence[str], scheme: TagScheme) -> list[Entity]:
    """Read the entities off the tags of one sentence; tags that break the scheme's rules make none.

    Example:
        >>> entities_of(["B-PER", "I-PER", "O", "I-LOC"], "BIO")
        [Entity(type='PER', start=0, end=2)]

    Raises:
        DataError: If a tag is not one of the scheme.
    """
    found: list[Entity] = []
    begin: int | None = None  # where the entity began that may still go on
    before = ""  # its type
    closing = scheme in ("IOBES", "BILOU", "BMES")
    for place, tag in enumerate([*tags, "O"]):
        letter, type_ = _parts(tag)
        if letter not in ("O", *_LETTERS[scheme]):
            raise DataError(f"the tag {tag!r} is none of {scheme}", allowed=f"O, {', '.join(_LETTERS[scheme])}")
        letter = _AS_IOBES.get(letter, letter)
        if begin is not None and (type_ != before or letter not in "IE"):
            if not closing:
                found.append(Entity(before, begin, place))
            begin = None
        if letter == "S":
            found.append(Entity(type_, place, place + 1))
        elif letter == "B" or (letter == "I" and scheme == "IO" and begin is None):
            begin, before = place, type_
        elif letter == "E" and begin is not None:
            found.append(Entity(before, begin, place + 1))
            begin = None
    return found


def entity_scores(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], *, scheme: TagScheme
) -> dict[str, float]:
    """Return precision, recall and F1 of entities, each in [0, 1].

    Returns:
        "f1", "precision", "recall" of all entities together (micro), then the same for each type ("f1_PER", ...), types
        in the order of the alphabet. 0 where nothing was predicted, or nothing was there.

    Example:
        >>> scores = entity_scores([["B-PER", "I-PER", "O"]], [["B-PER", "O", "O"]], scheme="BIO")
        >>> scores["f1"]
        0.0

    Raises:
        DataError: If there are no sentences, their numbers or lengths differ, or a tag is not one of the scheme.
    """
    check_pairs(len(gold), len(predicted))
    for number, (right, guessed) in enumerate(zip(gold, predicted, strict=True)):
        if len(right) != len(guessed):
            raise DataError(f"sentence {number} has {len(right)} words, and {len(guessed)} tags were predicted")
    right_entities, guessed_entities = (
        [entities_of(tags, scheme) for tags in sentences] for sentences in (gold, predicted)
    )
    types = sorted({entity.type for entities in (*right_entities, *guessed_entities) for entity in entities})
    evaluator = scoring_library("nervaluate", "nervaluate").Evaluator(
        _theirs(right_entities), _theirs(guessed_entities), tags=types, loader="dict"
    )
    results = evaluator.evaluate()
    scores = _named(results["overall"]["strict"], "")
    for type_ in types:
        scores |= _named(results["entities"][type_]["strict"], f"_{type_}")
    return scores


def _theirs(sentences: list[list[Entity]]) -> list[list[dict[str, str | int]]]:
    # nervaluate counts the last word in.
    return [
        [{"label": entity.type, "start": entity.start, "end": entity.end - 1} for entity in entities]
        for entities in sentences
    ]


def _named(result: object, suffix: str) -> dict[str, float]:
    return {f"{name}{suffix}": float(getattr(result, name)) for name in ("f1", "precision", "recall")}


def _parts(tag: str) -> tuple[str, str]:
    if tag == "O":
        return "O", ""
    letter, hyphen, type_ = tag[:1], tag[1:2], tag[2:]
    if letter not in set("BIESLUM") or hyphen not in ("", "-"):
        raise DataError(
            f"{tag!r} is not a tag", allowed='"O", or B, I, E, S, L, U or M with a hyphen and a type, e.g. "B-PER"'
        )
    return letter, type_ or _NO_TYPE
