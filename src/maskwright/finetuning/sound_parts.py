"""What makes scores say less than they seem to: texts that stand in two parts, too few examples."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

from maskwright.core.amounts import counted
from maskwright.finetuning.examples import ChoiceExample, Example, QuestionExample, TaggedExample, has_label

FEW = 50
"""Examples below which a part is said to be small: of fewer, each is over two in a hundred."""


def doubts(parts: Mapping[str, Sequence[Example]]) -> Iterator[tuple[str, str]]:
    """Yield (part, what the reader of its scores must know): how many of its texts are in an earlier part, how few.

    Texts are the same if they are so letter by letter. Of pairs both must be, of questions the text too, of choices
    the options too.

    Args:
        parts: Examples by part, training examples first.
    """
    texts: dict[str, set[Hashable]] = {}
    for part, examples in parts.items():
        its = [_text(example) for example in examples]
        told = [
            f"{_share(seen, len(its))} {_called(examples)} {'is' if seen == 1 else 'are'} in {earlier} too"
            for earlier, known in texts.items()
            if (seen := sum(text in known for text in its))
        ]
        texts[part] = set(its)
        if part != "train" and len(its) < FEW and any(map(has_label, examples)):
            told.append(f"{counted(len(its), 'example')}, each {100 / len(its):.0f} % of what is measured")
        if told:
            yield part, "; ".join(told)


def _share(count: int, total: int) -> str:
    return f"{count:,} of {total:,}" if count < total else f"all {total:,}"


def _text(example: Example) -> Hashable:
    match example:
        case QuestionExample():
            return example.question, example.context
        case ChoiceExample():
            return example.context, example.question, example.options
        case TaggedExample():
            return example.words
    return example.texts


def _called(examples: Sequence[Any]) -> str:
    match examples[0]:
        case QuestionExample() | ChoiceExample():
            return "questions"
        case TaggedExample():
            return "sentences"
    return "texts" if len(examples[0].texts) == 1 else "pairs of texts"
