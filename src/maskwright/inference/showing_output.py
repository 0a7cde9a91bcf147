"""Display of `Showing`: colored terminal text (`render`) and a self-contained HTML page (`page`).

Terminal text is readable without colors too: `[MASK]{cat}`, `dog{cat}`, `cat{cat}` if kept.
"""

from collections.abc import Iterator
from html import escape
from string import Template

from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from maskwright.inference.showing import Change, Showing, ShownSequence, ShownToken
from maskwright.recipes.table import Row, rows

_ON: dict[Change, str] = {
    "masked": "bold black on yellow",
    "replaced": "bold white on red",
    "kept": "black on green",
}
_BESIDE: dict[Change, str] = {"masked": "yellow", "replaced": "red", "kept": "green"}
_SPECIAL, _SECOND = "dim", "cyan"
_CONTINUES, _SAME_UNIT = "·", "‿"
"""Separators between tokens of a word, and between words of a selected unit."""


def render(showing: Showing) -> Group:
    """Return a renderable for `rich.console.Console.print`."""
    parts: list[Text | Padding] = [_headline(showing), _legend()]
    for number, sequence in enumerate(showing.sequences, start=1):
        parts.append(Text())
        parts.append(_caption(showing, sequence, number))
        parts.append(Padding(_sequence_text(sequence), (0, 0, 0, 2), expand=False))
    if showing.num_sequences > len(showing.sequences):
        more = showing.num_sequences - len(showing.sequences)
        parts.append(Text(f"\nand {more:,} more", style="dim"))
    return Group(*parts)


def _sequence_text(sequence: ShownSequence) -> Text:
    """Format one sequence; the original of a changed token follows in braces."""
    text = Text()
    previous: ShownToken | None = None
    for token in sequence.tokens:
        if previous is not None:
            if token.begins_word:
                joined = token.continues_unit(previous)
                text.append(_SAME_UNIT if joined else " ", style="bold" if joined else "")
            else:
                text.append("" if token.has_continuation_prefix else _CONTINUES, style="dim")
        if token.change is None:
            text.append(token.seen, style=_SPECIAL if token.special else _SECOND if token.segment else "")
        else:
            text.append(token.seen, style=_ON[token.change])
            text.append(f"{{{token.original}}}", style=_BESIDE[token.change])
        previous = token
    return text


def _legend() -> Text:
    """Return the legend of the colors."""
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


def _headline(showing: Showing) -> Text:
    copies = showing.recipe.masks.copies
    sample = f"mask sample {showing.refresh + 1}" + (f" of {copies}" if copies else "")
    return Text.assemble(
        (showing.recipe.name, "bold"),
        (f"  seed {showing.seed}, epoch {showing.epoch} ({sample}), ", "dim"),
        (f"sequences of at most {showing.max_length} tokens\n", "dim"),
        (f"tokenizer: {showing.tokenizer}", "dim"),
    )


def _caption(showing: Showing, sequence: ShownSequence, number: int) -> Text:
    return Text.assemble((f"{number}", "bold"), (f"  {', '.join(_caption_parts(showing, sequence))}", "dim"))


def _caption_parts(showing: Showing, sequence: ShownSequence) -> Iterator[str]:
    """Yield facts about a sequence: length, selected tokens, outcomes, pair label."""
    tokens, selected = len(sequence.tokens), sequence.num_selected
    yield f"{tokens} tokens"
    yield f"{selected} predicted ({selected / tokens:.1%})"
    masked, replaced, kept = (sequence.count(change) for change in ("masked", "replaced", "kept"))
    yield f"{masked} masked, {replaced} replaced, {kept} kept"
    if pair := showing.pair_words(sequence.pair_label):
        yield pair


_SHOWN_AXES = ("input format", "masking", "replacement", "masks", "objectives")


def page(showing: Showing) -> str:
    """Return the HTML page."""
    more = showing.num_sequences - len(showing.sequences)
    return _PAGE.substitute(
        name=escape(showing.recipe.name),
        summary=escape(showing.recipe.summary),
        paper=escape(showing.recipe.paper),
        seed=showing.seed,
        epoch=showing.epoch,
        max_length=showing.max_length,
        tokenizer=escape(showing.tokenizer),
        choices="\n".join(_choices(showing)),
        notes="".join(f'<p class="note">{escape(note)}</p>' for note in showing.notes),
        sequences="\n".join(
            _html_sequence(showing, sequence, number) for number, sequence in enumerate(showing.sequences, start=1)
        ),
        continues=_CONTINUES,
        same_unit=_SAME_UNIT,
        more=f'<p class="note">and {more:,} more</p>' if more else "",
    )


def _choices(showing: Showing) -> list[str]:
    by_axis: dict[str, list[Row]] = {}
    for row in rows(showing.recipe):
        by_axis.setdefault(row.axis, []).append(row)
    return [
        f"<section><h2>{escape(axis)}</h2><dl>"
        + "".join(f"<dt>{escape(row.label)}</dt><dd>{escape(row.value)}</dd>" for row in by_axis[axis])
        + "</dl></section>"
        for axis in _SHOWN_AXES
    ]


def _html_sequence(showing: Showing, sequence: ShownSequence, number: int) -> str:
    facts = "".join(f"<span>{escape(part)}</span>" for part in _caption_parts(showing, sequence))
    text = ""
    previous: ShownToken | None = None
    for place, token in enumerate(sequence.tokens):
        if token.begins_word or previous is None:
            tied = previous is not None and token.continues_unit(previous)
            text += f'{"</span> " if previous else ""}<span class="word{" tied" if tied else ""}">'
        elif not token.has_continuation_prefix:
            text += f'<span class="joint">{_CONTINUES}</span>'
        text += _html_token(token, place)
        previous = token
    return f'<article><header><b>{number}</b>{facts}</header><p class="text">{text}</span> </p></article>'


def _html_token(token: ShownToken, number: int) -> str:
    classes = ["token"]
    if token.change:
        classes.append(token.change)
    if token.special:
        classes.append("special")
    if token.segment:
        classes.append("second")
    title = f"token {number}, segment {'AB'[token.segment]}: {token.original} (id {token.original_id})"
    if token.change:
        title += {
            "masked": " is masked",
            "replaced": f" is replaced by {token.seen} (id {token.seen_id})",
            "kept": " is unchanged but predicted",
        }[token.change]
        title += f"; unit {token.unit}"
    original = f"<i>{escape(token.original)}</i>" if token.change else ""
    seen = f"<b>{escape(token.seen)}</b>"
    return f'<span class="{" ".join(classes)}" title="{escape(title, quote=True)}">{seen}{original}</span>'


_PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$name: masking of a text</title>
<style>
:root {
  color-scheme: light dark;
  --paper: light-dark(#fbfaf7, #15171b); --card: light-dark(#ffffff, #1d2026);
  --ink: light-dark(#23262d, #e4e4e0); --faint: light-dark(#767a83, #8b909a);
  --line: light-dark(#e6e3db, #2d313a); --second: light-dark(#0b6a7d, #6cc5d8);
  --masked: light-dark(#ffe08a, #6b5310); --replaced: light-dark(#ffc2b8, #7a2a20);
  --kept: light-dark(#c4ebc4, #23562b);
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
h1 { font-size: 1.9rem; letter-spacing: -.02em; margin: 0; }
.lead, .note, .small { color: var(--faint); margin: .25rem 0; }
.small { font-size: .875rem; }
.choices { display: grid; grid-template-columns: repeat(auto-fit, minmax(16rem, 1fr)); gap: .5rem 2rem;
  margin: 1.5rem 0; padding: 1rem 1.25rem; border: 1px solid var(--line); border-radius: .75rem;
  font-size: .875rem; }
summary { cursor: pointer; color: var(--faint); font-size: .875rem; margin-top: 1.25rem; }
h2 { font-size: .75rem; letter-spacing: .08em; text-transform: uppercase; color: var(--faint);
  margin: .5rem 0 .25rem; }
dl { display: grid; grid-template-columns: auto 1fr; gap: 0 .75rem; margin: 0; }
dt { color: var(--faint); } dd { margin: 0; text-align: right; }
.bar { position: sticky; top: 0; z-index: 1; display: flex; flex-wrap: wrap; gap: .35rem 1.25rem;
  align-items: center; padding: .7rem 0; margin: 1rem 0; font-size: .875rem;
  background: var(--paper); border-bottom: 1px solid var(--line); }
.bar label { cursor: pointer; }
.legend { display: flex; flex-wrap: wrap; gap: .35rem 1rem; margin-left: auto; }
.key { border-radius: .3rem; padding: .05rem .45rem; }
article { background: var(--card); border: 1px solid var(--line); border-radius: .75rem;
  padding: 1rem 1.25rem 1.25rem; margin: 1rem 0; }
article header { display: flex; flex-wrap: wrap; gap: .15rem 1.1rem; color: var(--faint);
  font-size: .8125rem; }
article header b { color: var(--ink); }
.text { margin: .6rem 0 0; overflow-wrap: anywhere; }
.word { display: inline-flex; flex-wrap: wrap; gap: 1px; align-items: baseline; margin: .16rem 0; }
.tied::before { content: "$same_unit"; }
.joint { color: var(--faint); }
.token { display: inline-flex; flex-direction: column; align-items: center; line-height: 1.35;
  padding: 0 .12rem; border-radius: .3rem; cursor: default; }
.token b { font-weight: 400; } .token i { font-size: .75rem; color: var(--faint); }
.token:hover { outline: 2px solid var(--faint); }
.special { color: var(--faint); font-size: .8125rem; }
.second { color: var(--second); } .special.second { color: var(--faint); }
.masked { background: var(--masked); }
.replaced { background: var(--replaced); }
.kept { background: var(--kept); }
.masked, .replaced, .kept { padding: .05rem .3rem; color: var(--ink); }
.replaced b, .kept b { font-weight: 600; }
.masked b { font-size: .8125rem; line-height: 1.6; }
.masked i, .replaced i, .kept i { color: inherit; opacity: .75; }
body:has(#original:checked) .token:has(i) b { display: none; }
body:has(#original:checked) .token i { font-size: 1rem; font-style: normal; opacity: 1; }
body:has(#seen:checked) .token i { display: none; }
</style>
</head>
<body><main>
<h1>$name</h1>
<p class="lead">$summary. $paper</p>
<p class="small">seed $seed, epoch $epoch, sequences of at most $max_length tokens. Tokenizer: $tokenizer.</p>
$notes
<details><summary>Recipe</summary><div class="choices">
$choices
</div></details>
<div class="bar">
<label><input type="radio" name="view" id="both" checked> both</label>
<label><input type="radio" name="view" id="seen"> what the encoder sees</label>
<label><input type="radio" name="view" id="original"> the original</label>
<span class="legend"><span class="key masked">masked</span><span class="key replaced">replaced</span>
<span class="key kept">unchanged but predicted</span><span class="key second">second segment</span>
<span class="key">$continues within a word</span> <span class="key tied"> within a unit of several words</span></span>
</div>
$sequences
$more
</main></body>
</html>
""")
