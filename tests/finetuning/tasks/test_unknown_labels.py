"""Labels that a task does not have: the error says the settings of reading that mend it, as one writes them."""

import re
import shlex

import pytest

from maskwright.core.errors import DataError
from maskwright.finetuning.examples import TextExample
from maskwright.finetuning.readers import ReadOptions
from maskwright.finetuning.readers.options import with_overrides
from maskwright.finetuning.tasks import Classification, MultiLabel


def settings(error: DataError) -> list[str]:
    """Return what the shell makes of each `--read SETTING` in the advice."""
    return [shlex.split(written)[1] for written in re.findall(r"`(--read [^`]*)`", error.todo)]


@pytest.mark.parametrize(
    ("label", "labels", "meant"),
    [
        ("neutral", ("neg", "pos"), "neg"),
        ("Pos", ("neg", "pos"), "pos"),
        ("1", ("gut", "schlecht"), "gut"),
        ("1.50", ("1.5", "0"), "1.5"),
        ("it's: so, [so]", ("true", "-"), "true"),
    ],
)
def test_advice_can_be_followed_to_the_letter(label: str, labels: tuple[str, ...], meant: str) -> None:
    examples = [TextExample(key="3", texts=("a",), label=label)]
    with pytest.raises(DataError, match="example 3: unknown label") as caught:
        Classification(labels=labels).check(examples)
    called, dropped = settings(caught.value)
    assert with_overrides(ReadOptions(), {}, [called]).label_names == ((label, meant),)
    assert with_overrides(ReadOptions(), {}, [dropped]).dropped_labels == (label,)


def test_only_what_helps_is_advised() -> None:
    examples = [TextExample(key="3", texts=("a",), label=("joy", "rage"))]
    with pytest.raises(DataError, match="example 3: unknown label 'rage'") as caught:
        MultiLabel(labels=("joy", "fear")).check(examples)
    assert [setting.partition("=")[0] for setting in settings(caught.value)] == ["label_names"]
    with pytest.raises(DataError, match="positive class") as caught:
        Classification(labels=("neg", "pos"), positive="yes")
    assert not settings(caught.value)
