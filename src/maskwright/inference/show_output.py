"""Display of `Preview` as colored text, readable without colors too: `[MASK]{cat}`, `dog{cat}`, `cat{cat}` if kept."""

from collections.abc import Sequence
from dataclasses import replace

from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from maskwright.inference.show import Change, Preview, SequencePreview, TokenPreview

_ON: dict[Change, str] = {"masked": "bold black on yellow", "replaced": "bold white on red", "kept": "black on green"}
_BESIDE: dict[Change, str] = {"masked": "yellow", "replaced": "red", "kept": "green"}
_SPECIAL, _SECOND = "dim", "cyan"
_CONTINUES, _SAME_UNIT = "·", "‿"
"""Separators between tokens of a word, and between words of a selected unit."""


def render(preview: Preview) -> Group:
    copies = preview.recipe.masks.copies
    sample = f"mask sample {preview.mask_sample + 1}" + (f" of {copies}" if copies else "")
    headline = Text.assemble(
        (preview.recipe.name, "bold"),
        (f"  seed {preview.seed}, epoch {preview.epoch} ({sample}), ", "dim"),
        (f"sequences of at most {preview.max_length} tokens\n", "dim"),
        (f"tokenizer: {preview.tokenizer}", "dim"),
    )
    parts: list[Text | Padding] = [headline, _legend()]
    for number, sequence in enumerate(preview.sequences, start=1):
        facts = ", ".join(_facts(preview, sequence))
        parts.append(Text.assemble((f"\n{number}", "bold"), (f"  {facts}", "dim")))
        lines = [_sequence_text(sequence.tokens)]
        if any(token.sampled is not None for token in sequence.tokens):
            lines += [Text(_encoder_facts(sequence), style="dim"), _sequence_text(_encoder_tokens(sequence))]
        if sequence.spans is not None:
            lines += _spans_text(sequence)
        parts.append(Padding(Group(*lines), (0, 0, 0, 2), expand=False))
    if more := preview.num_sequences - len(preview.sequences):
        parts.append(Text(f"\nand {more:,} more", style="dim"))
    return Group(*parts)


def _facts(preview: Preview, sequence: SequencePreview) -> list[str]:
    """List length, selected tokens, outcomes and pair label of a sequence."""
    tokens, changes = len(sequence.tokens), [token.change for token in sequence.tokens]
    selected = tokens - changes.count(None)
    facts = [f"{tokens} tokens", f"{selected} predicted ({selected / tokens:.1%})"]
    facts.append(", ".join(f"{changes.count(change)} {change}" for change in _ON))
    pair = preview.pair_words(sequence.pair_label)
    return [*facts, pair] if pair else facts


def _encoder_facts(sequence: SequencePreview) -> str:
    labels = [token.is_replaced for token in sequence.tokens]
    if set(labels) == {None}:
        return "the encoder sees"
    return f"the encoder sees, and labels: {labels.count(True)} replaced, {labels.count(False)} original"


def _encoder_tokens(sequence: SequencePreview) -> list[TokenPreview]:
    """Return the tokens with the generator's samples in place of the selected ones."""
    return [
        token
        if token.sampled is None
        else replace(token, seen=token.sampled, change="kept" if token.sampled_id == token.original_id else "replaced")
        for token in sequence.tokens
    ]


def _spans_text(sequence: SequencePreview) -> list[Text]:
    """Format each span with its boundary tokens, and its predicted tokens with their positions in the span."""
    if not sequence.spans:
        return [Text("no span between two boundary tokens of text", style="dim")]
    originals = [token.original for token in sequence.tokens]
    return [
        Text.assemble(
            ("boundaries ", "dim"),
            (originals[span.left], "bold"),
            " ... ",
            (originals[span.right], "bold"),
            (" predict ", "dim"),
            ", ".join(f"{originals[index]} at {position}" for index, position in span.targets),
        )
        for span in sequence.spans
    ]


def _sequence_text(tokens: Sequence[TokenPreview]) -> Text:
    """Format one sequence; the original of a changed token follows in braces."""
    text = Text()
    previous: TokenPreview | None = None
    for token in tokens:
        if previous is not None:
            if token.begins_word:
                joined = token.unit is not None and token.unit == previous.unit
                text.append(_SAME_UNIT if joined else " ", style="bold" if joined else "")
            elif not token.seen.startswith("##"):
                text.append(_CONTINUES, style="dim")
        if token.change is None:
            text.append(token.seen, style=_SPECIAL if token.special else _SECOND if token.segment else "")
        else:
            text.append(token.seen, style=_ON[token.change])
            text.append(f"{{{token.original}}}", style=_BESIDE[token.change])
        previous = token
    return text


def _legend() -> Text:
    return Text.assemble(
        ("[MASK]", _ON["masked"]),
        ("{original}", _BESIDE["masked"]),
        " masked   ",
        ("other", _ON["replaced"]),
        ("{original}", _BESIDE["replaced"]),
        " replaced by another token   ",
        ("same", _ON["kept"]),
        ("{same}", _BESIDE["kept"]),
        " unchanged but predicted   ",
        ("special", _SPECIAL),
        "   ",
        ("second segment", _SECOND),
        f"   {_CONTINUES} within a word   {_SAME_UNIT} within a unit of several words",
    )
