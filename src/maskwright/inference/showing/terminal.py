"""A showing as coloured text, readable without colours too: `[MASK]{cat}`, `dog{cat}`, `cat{cat}` if kept."""

from collections.abc import Iterator

from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from maskwright.inference.showing.sequences import Change, ShownSequence, ShownToken
from maskwright.inference.showing.show import Showing

_ON: dict[Change, str] = {
    "masked": "bold black on yellow",
    "replaced": "bold white on red",
    "kept": "black on green",
}
_BESIDE: dict[Change, str] = {"masked": "yellow", "replaced": "red", "kept": "green"}
_SPECIAL, _SECOND = "dim", "cyan"
CONTINUES, SAME_UNIT = "·", "‿"
"""What stands between tokens of a word, and between words of a selected unit."""


def render(showing: Showing) -> Group:
    """Return the whole showing for `rich.console.Console.print`."""
    parts: list[Text | Padding] = [_headline(showing), legend()]
    for number, sequence in enumerate(showing.sequences, start=1):
        parts.append(Text())
        parts.append(_caption(showing, sequence, number))
        parts.append(Padding(sequence_text(sequence), (0, 0, 0, 2), expand=False))
    if showing.num_sequences > len(showing.sequences):
        more = showing.num_sequences - len(showing.sequences)
        parts.append(Text(f"\nand {more:,} more", style="dim"))
    return Group(*parts)


def sequence_text(sequence: ShownSequence) -> Text:
    """Return one sequence: words apart, pieces of a word joined, originals in braces after what is seen."""
    text = Text()
    previous: ShownToken | None = None
    for token in sequence.tokens:
        if previous is not None:
            text.append_text(_between(previous, token))
        text.append_text(_token(token))
        previous = token
    return text


def legend() -> Text:
    """Return what the colours mean."""
    return Text.assemble(
        ("[MASK]", _ON["masked"]),
        ("{original}", _BESIDE["masked"]),
        " masked   ",
        ("other", _ON["replaced"]),
        ("{original}", _BESIDE["replaced"]),
        " replaced by another token   ",
        ("same", _ON["kept"]),
        ("{same}", _BESIDE["kept"]),
        " kept, predicted all the same   ",
        ("special", _SPECIAL),
        "   ",
        ("second segment", _SECOND),
        f"   {CONTINUES} within a word   {SAME_UNIT} within a unit of several words",
    )


def _headline(showing: Showing) -> Text:
    copies = showing.recipe.masks.copies
    drawing = f"drawing {showing.refresh + 1} of {copies}" if copies else f"drawing {showing.refresh + 1}"
    return Text.assemble(
        (showing.recipe.name, "bold"),
        (f"  seed {showing.seed}, epoch {showing.epoch} ({drawing}), ", "dim"),
        (f"sequences of at most {showing.max_length} tokens\n", "dim"),
        (f"tokenizer: {showing.tokenizer}", "dim"),
    )


def _caption(showing: Showing, sequence: ShownSequence, number: int) -> Text:
    return Text.assemble((f"{number}", "bold"), (f"  {', '.join(caption_parts(showing, sequence))}", "dim"))


def caption_parts(showing: Showing, sequence: ShownSequence) -> Iterator[str]:
    """Yield what is said about a sequence: its length, what was selected, what its pair is."""
    tokens, selected = len(sequence.tokens), sequence.num_selected
    yield f"{tokens} tokens"
    yield f"{selected} predicted ({selected / tokens:.1%})"
    masked, replaced, kept = (sequence.count(change) for change in ("masked", "replaced", "kept"))
    yield f"{masked} masked, {replaced} replaced, {kept} kept"
    if pair := showing.pair_words(sequence.pair_label):
        yield pair


def _token(token: ShownToken) -> Text:
    if token.change is None:
        style = _SPECIAL if token.special else _SECOND if token.segment else ""
        return Text(token.seen, style=style)
    return Text.assemble((token.seen, _ON[token.change]), (f"{{{token.original}}}", _BESIDE[token.change]))


def _between(previous: ShownToken, token: ShownToken) -> Text:
    """Return what stands between two tokens: words of one selected unit are tied together."""
    if token.begins_word:
        return Text(SAME_UNIT, style="bold") if token.continues_unit(previous) else Text(" ")
    return Text("" if token.says_that_it_continues else CONTINUES, style="dim")
