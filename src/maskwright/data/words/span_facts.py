"""Counts of the phrases and entities found in a corpus, in bounded memory."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from maskwright.data.scripts import is_han

_MAX_DISTINCT = 1 << 20
_EXAMPLES = 12


@dataclass(slots=True)
class SpanFacts:
    """Spans of one kind, of two words or more; Chinese ones of two characters or more.

    Attributes:
        units: Number of spans.
        tokens: Number of their tokens.
        counts: How often each was found, as written; no new ones beyond 2^20, so memory stays bounded.
    """

    units: int = 0
    tokens: int = 0
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, other: "SpanFacts") -> None:
        self.units += other.units
        self.tokens += other.tokens
        if len(self.counts) + len(other.counts) <= _MAX_DISTINCT:
            self.counts.update(other.counts)
            return
        for text, count in other.counts.items():
            if text in self.counts or len(self.counts) < _MAX_DISTINCT:
                self.counts[text] += count

    def to_json(self, num_tokens: int) -> dict[str, Any]:
        """Return the facts for the data card of a corpus of so many tokens."""
        # Ties by alphabet: the same for any order of blocks.
        common = sorted(self.counts.items(), key=lambda item: (-item[1], item[0]))[:_EXAMPLES]
        return {
            "units": self.units,
            "share_of_tokens": round(self.tokens / max(1, num_tokens), 6),
            "distinct": len(self.counts),
            "all_distinct_counted": len(self.counts) < _MAX_DISTINCT,
            "examples": [text for text, _ in common],
        }


def with_span_facts(page: str, facts: Mapping[str, Mapping[str, Any]]) -> str:
    """Append the facts of each kind of spans to a data card's page."""
    if not facts:
        return page
    lines = [f"- {describe_spans(kind, of_kind)}" for kind, of_kind in facts.items()]
    return "\n".join([page.rstrip("\n"), "", "## Phrases and entities", "", *lines, ""])


def describe_spans(kind: str, facts: Mapping[str, Any]) -> str:
    """Describe the spans of a kind (`SpanFacts.to_json`) in a sentence."""
    if not facts["units"]:
        return f"no {kind} of two words or more (Chinese: two characters or more) was found"
    plural = {"phrase": "phrases", "entity": "entities"}[kind]
    distinct = f"{'' if facts['all_distinct_counted'] else 'over '}{facts['distinct']:,} distinct"
    share = f"{100 * facts['share_of_tokens']:.1f} % of the tokens"
    length = "two characters" if any(map(is_han, "".join(facts["examples"]))) else "two words"
    examples = ", ".join(facts["examples"])
    return f"{facts['units']:,} {plural} of {length} or more ({distinct}, {share}): {examples}"
