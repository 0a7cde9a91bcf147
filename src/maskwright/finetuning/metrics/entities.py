"""Precision, recall and F1 of entities marked by tags, as conlleval counts them.

An entity is correct if both boundaries and the type are. Entities are read from tags by the rules of conlleval.pl
(CoNLL-2000), which are also those of seqeval in its default mode: malformed tags count. "I-PER" after "O" starts an
entity, "B-PER" before "O" is a whole one in every scheme. The strict mode of seqeval would drop such entities.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from maskwright.core.errors import DataError

_ENTITY_TAG = re.compile(r"O|[BIESLUM](-.+)?", re.DOTALL)
"""B begins an entity and I continues it, in IOB1 only a B after an entity of the same type is written. IOBES has also E
for the end and S for a single word; BILOU writes L and U for these, and BMES, usual in Chinese, M for I."""
_AS_IOBES = {"L": "E", "U": "S", "M": "I"}


class Entity(NamedTuple):
    """Words [start, end) of a sentence and their type, "_" for tags without one ("B", "I")."""

    type: str
    start: int
    end: int


def mark_entities(tags: Iterable[str]) -> bool:
    """Return whether the distinct tags of a file mark entities ("O" and "B-PER"), rather than parts of speech."""
    tags = set(tags)
    return "O" in tags and any(is_entity_tag(tag) and tag[1:2] == "-" for tag in tags)


def is_entity_tag(tag: str) -> bool:
    """Return whether a tag is "O" or a letter of any scheme with or without a type: "B-PER", "B"."""
    return _ENTITY_TAG.fullmatch(tag) is not None


def entities_of(tags: Sequence[str]) -> list[Entity]:
    """Return the entities that the tags of one sentence mark, in any scheme, by conlleval's rules.

    I or E (M, L) of the same type after B or I (M) continues an entity; any other tag but "O" starts one.
    """
    entities: list[Entity] = []
    before = "O"
    for position, tag in enumerate(tags):
        if not is_entity_tag(tag):
            raise DataError(
                f"{tag!r} is not a tag of entities",
                allowed='"O", or B, I, E, S, L, U or M with a hyphen and a type, e.g. "B-PER"',
            )
        letter, type_ = _AS_IOBES.get(tag[0], tag[0]), tag[2:] or "_"
        if entities and before in "BI" and letter in "IE" and type_ == entities[-1].type:
            entities[-1] = entities[-1]._replace(end=position + 1)
        elif letter != "O":
            entities.append(Entity(type_, position, position + 1))
        before = letter
    return entities


def entity_scores(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, float]:
    """Return precision, recall and F1 of entities, each in [0, 1]; 0 where nothing was predicted or is to be found.

    "f1", "precision", "recall" of all entities (micro average), then of each type ("f1_PER", ...) in alphabetical
    order.
    """
    num_gold, num_predicted, num_correct = Counter[str](), Counter[str](), Counter[str]()
    for gold_tags, predicted_tags in zip(gold, predicted, strict=True):
        gold_entities, predicted_entities = set(entities_of(gold_tags)), set(entities_of(predicted_tags))
        for counts, entities in (
            (num_gold, gold_entities),
            (num_predicted, predicted_entities),
            (num_correct, gold_entities & predicted_entities),
        ):
            counts.update(entity.type for entity in entities)
    scores = _scores(num_correct.total(), num_predicted.total(), num_gold.total(), "")
    for type_ in sorted(num_gold | num_predicted):
        scores |= _scores(num_correct[type_], num_predicted[type_], num_gold[type_], f"_{type_}")
    return scores


def _scores(num_correct: int, num_predicted: int, num_gold: int, suffix: str) -> dict[str, float]:
    precision, recall = num_correct / max(num_predicted, 1), num_correct / max(num_gold, 1)
    f1 = 2 * precision * recall / (precision + recall) if num_correct else 0.0
    return {f"f1{suffix}": f1, f"precision{suffix}": precision, f"recall{suffix}": recall}
