"""Counts of the phrases and entities found in a corpus, in bounded memory."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_MOST_DISTINCT = 1 << 20
_EXAMPLES = 12


@dataclass(slots=True)
class LevelFacts:
    """Units of two and more words of one level.

    Attributes:
        units: How many there are.
        tokens: How many tokens they hold.
        lost: Given spans that have no place among the tokens: they cross a sentence's end, or hold no token.
        counts: How often each was found, as it is written. Beyond 2^20 different ones no new ones are taken in, so
            memory stays bounded.
    """

    units: int = 0
    tokens: int = 0
    lost: int = 0
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, other: "LevelFacts") -> None:
        """Add another part of the corpus to this."""
        self.units += other.units
        self.tokens += other.tokens
        self.lost += other.lost
        if len(self.counts) + len(other.counts) <= _MOST_DISTINCT:
            self.counts.update(other.counts)
            return
        for text, count in other.counts.items():
            if text in self.counts or len(self.counts) < _MOST_DISTINCT:
                self.counts[text] += count

    def to_json(self, num_tokens: int) -> dict[str, Any]:
        """Return what the data card says, of a corpus of so many tokens."""
        # The most frequent, and of equally common ones the first in the alphabet: the same for any order of blocks.
        common = sorted(self.counts.items(), key=lambda item: (-item[1], item[0]))[:_EXAMPLES]
        return {
            "units": self.units,
            "share_of_tokens": round(self.tokens / max(1, num_tokens), 6),
            "distinct": len(self.counts),
            "all_distinct_counted": len(self.counts) < _MOST_DISTINCT,
            "lost": self.lost,
            "examples": [text for text, _ in common],
        }


def with_levels(page: str, levels: Mapping[str, Mapping[str, Any]]) -> str:
    """Add to a data card's page what was found of each level."""
    if not levels:
        return page
    lines = [f"- {describe_level(level, facts)}" for level, facts in levels.items()]
    return "\n".join([page.rstrip("\n"), "", "## Phrases and entities", "", *lines, ""])


def describe_level(level: str, facts: Mapping[str, Any]) -> str:
    """Say in a sentence what was found of a level (`LevelFacts.to_json`).

    Example:
        >>> describe_level("phrase", {"units": 2, "share_of_tokens": 0.5, "distinct": 1,
        ...                           "all_distinct_counted": True, "lost": 0, "examples": ["New York"]})
        '2 phrases of two words and more, 1 different, hold 50.0 % of the tokens: New York'
    """
    plural = {"phrase": "phrases", "entity": "entities"}[level]
    if not facts["units"]:
        text = f"no {level} of two words and more was found"
    else:
        different = f"{'' if facts['all_distinct_counted'] else 'over '}{facts['distinct']:,} different"
        share = f"{100 * facts['share_of_tokens']:.1f} % of the tokens"
        text = f"{facts['units']:,} {plural} of two words and more, {different}, hold {share}: "
        text += ", ".join(facts["examples"])
    return text + (f"; {facts['lost']:,} given ones have no place in a sentence" if facts["lost"] else "")
