"""Which of several options is right: by letter, by number, or by its text."""

from collections.abc import Sequence

from maskwright.finetuning.examples import ChoiceExample
from maskwright.finetuning.readers.options import ReadOptions
from maskwright.finetuning.readers.texts import as_text


def letter(value: object) -> int | None:
    """Return the number, from 0, that a letter stands for; None where there is none.

    Raises:
        ValueError: If it is no letter.
    """
    if value is None or value == "":
        return None
    text = str(value).strip().upper()
    if len(text) != 1 or not "A" <= text <= "Z":
        raise ValueError(f"the answer {value!r} is not a letter")
    return ord(text) - ord("A")


def matching(value: object, choices: Sequence[object]) -> int | None:
    """Return the number of the option that an answer repeats; None where there is no answer.

    Raises:
        ValueError: If none or several of the options are the answer.
    """
    if value is None:
        return None
    answer = str(value).strip()
    found = [number for number, choice in enumerate(choices) if str(choice).strip() == answer]
    if len(found) != 1:
        raise ValueError(f"the answer {answer!r} is {'none' if not found else str(len(found))} of the options")
    return found[0]


def checked_choice(
    key: str, context: str, question: object, choices: object, label: int | None, options: ReadOptions
) -> ChoiceExample:
    """Make an example of a question that can be answered.

    Raises:
        ValueError: If it has fewer than two options, a text is no text, or the answer is missing or none of them.
    """
    if not isinstance(choices, list | tuple) or len(choices) < 2:
        raise ValueError("fewer than two options")
    offered = tuple(as_text(choice) for choice in choices)
    if not all(choice.strip() for choice in offered):
        raise ValueError("an option is empty")
    if label is None and options.labels == "needed":
        raise ValueError("no answer")
    if label is not None and not 0 <= label < len(offered):
        raise ValueError(f"the answer is option {label + 1} of {len(offered)}")
    return ChoiceExample(key=key, context=as_text(context), question=as_text(question), options=offered, label=label)
