"""Several names on a command line: with commas, in a list, as one word."""

from typing import Any

import pytest

from maskwright.core.errors import DataError, RecipeError
from maskwright.finetuning.examples import TextExample
from maskwright.finetuning.readers import ReadOptions, read_as_from_json, to_keep
from maskwright.finetuning.readers.options import with_overrides
from maskwright.finetuning.tasks import make_task

EXAMPLES = [TextExample(key=str(n), texts=("a",), label=str(n % 2)) for n in range(4)]


@pytest.mark.parametrize(
    ("said", "field", "meant"),
    [
        ("choices=A,B,C", "choices", ("A", "B", "C")),
        ("choices=[A, B, C]", "choices", ("A", "B", "C")),
        ("choices=['a, b', c]", "choices", ("a, b", "c")),
        ("choices=options", "choices", ("options",)),
        ("choices=3,4", "choices", ("3", "4")),
        ("label_columns=joy, fear", "label_columns", ("joy", "fear")),
        ("known_labels=[0, 1]", "known_labels", ("0", "1")),
        ("dropped_labels=neutral", "dropped_labels", ("neutral",)),
        ("dropped_labels=[true]", "dropped_labels", ("true",)),
        ("label_names=[[0, neg], [1, pos]]", "label_names", (("0", "neg"), ("1", "pos"))),
        ("label_names=[0, neg]", "label_names", (("0", "neg"),)),
        ("label_names={neutral: neg}", "label_names", (("neutral", "neg"),)),
        ("only=[language, zh]", "only", (("language", "zh"),)),
        ("key=1", "key", "1"),
        ("text=[sentence, 4]", "text", ("sentence", "4")),
    ],
)
def test_names_are_read_as_they_are_meant(said: str, field: str, meant: object) -> None:
    options = with_overrides(ReadOptions(), {}, [said])
    assert getattr(options, field) == meant
    kept = {name: value for name, value in to_keep(options, {}).items() if name not in ("key", "only")}
    assert read_as_from_json(kept, "reading.json") == kept


@pytest.mark.parametrize("said", ["label_names=neg", "label_names=[neg]", "only=[[a, b, c]]"])
def test_what_is_no_pair_is_refused_with_the_right_form(said: str) -> None:
    with pytest.raises(RecipeError, match=r"write pairs of names, '\[\[one, another\], \[one, another\]\]'; found"):
        with_overrides(ReadOptions(), {}, [said])


@pytest.mark.parametrize(
    ("own", "metrics", "labels"),
    [
        ({"metrics": "macro_f1"}, ("macro_f1",), ("0", "1")),
        ({"metrics": "macro_f1, accuracy"}, ("macro_f1", "accuracy"), ("0", "1")),
        ({"metrics": ["macro_f1", "accuracy"]}, ("macro_f1", "accuracy"), ("0", "1")),
        ({"labels": [1, 0], "positive": 0}, ("accuracy",), ("1", "0")),
    ],
)
def test_fields_of_a_task_are_names_too(own: dict[str, Any], metrics: tuple[str, ...], labels: tuple[str, ...]) -> None:
    task: Any = make_task("classification", None, EXAMPLES, own)
    assert (task.metrics, task.labels) == (metrics, labels)
    assert task.positive == (str(own["positive"]) if "positive" in own else None)


def test_misspelt_metric_names_the_nearest() -> None:
    with pytest.raises(DataError, match=r"unknown metric .* 'acuracy'\. Allowed: .*Did you mean 'accuracy'\?"):
        make_task("classification", None, EXAMPLES, {"metrics": "acuracy"})
