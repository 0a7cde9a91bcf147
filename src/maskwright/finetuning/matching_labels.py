"""Which label of a model is which of a benchmark: their makers name them differently ("POSITIVE" and "1")."""

from collections.abc import Mapping, Sequence

from maskwright.core.errors import RecipeError


def matching_labels(ours: Sequence[str], theirs: Sequence[str]) -> Mapping[str, str]:
    """Return the model's label for each of the benchmark's.

    They are the same if they are written alike, but for capitals and punctuation; and where the benchmark has numbers
    only ("0", "1"), these are the model's first, second and so on. Labels that a model merely counts ("LABEL_2") are
    not matched with names: the makers of models order classes differently, and every score would be wrong.

    Args:
        ours: The benchmark's, in the order of its table.
        theirs: The model's, in the order of its head's scores.

    Raises:
        RecipeError: If they cannot be matched.

    Example:
        >>> matching_labels(["0", "1"], ["NEGATIVE", "POSITIVE"])
        {'0': 'NEGATIVE', '1': 'POSITIVE'}
        >>> matching_labels(["entailment", "not_entailment"], ["Not entailment", "Entailment"])
        {'entailment': 'Entailment', 'not_entailment': 'Not entailment'}
    """
    if len(ours) == len(theirs):
        plain = {_plain(label): label for label in theirs}
        if len(plain) == len(theirs) and {_plain(label) for label in ours} == plain.keys():
            return {label: plain[_plain(label)] for label in ours}
        if list(ours) == [str(number) for number in range(len(ours))]:
            return dict(zip(ours, theirs, strict=True))
    first = theirs[0] if theirs else "..."
    raise RecipeError(
        f"the benchmark's labels ({_shown(ours)}) are not the model's ({_shown(theirs)})",
        todo=f"Say which is which: `--read label_names=[[{ours[0]}, {first}], ...]`.",
    )


def _plain(label: str) -> str:
    return "".join(character for character in label.casefold() if character.isalnum())


def _shown(labels: Sequence[str]) -> str:
    return ", ".join(labels[:6]) + (", ..." if len(labels) > 6 else "") if labels else "none"
