"""How a training file was read is kept beside the model."""

import json
from pathlib import Path
from typing import Any

import pytest

from maskwright.core.errors import DataError
from maskwright.finetuning.labeled import load_read_as, save_read_as


def test_it_is_kept_beside_the_model(tmp_path: Path) -> None:
    assert load_read_as(tmp_path) == {}
    for before in ({}, {"text": "other"}):
        save_read_as(tmp_path, before)
        save_read_as(tmp_path, {})  # A model of which nobody says, where another one lay.
        assert not list(tmp_path.iterdir())
    kept = {"text": "satz", "choices": ("a", "b"), "first_option": 1, "label_names": (("1", "gut"),)}
    save_read_as(tmp_path, kept)
    assert load_read_as(tmp_path) == kept
    (tmp_path / "reading.json").write_text('{"txt": 1}')
    with pytest.raises(DataError, match="does not describe how files are read"):
        load_read_as(tmp_path)
    (tmp_path / "reading.json").write_text('{"first_option": 7}')
    with pytest.raises(DataError, match=r"reading\.json"):
        load_read_as(tmp_path)


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"benchmark": "nli"}, "names a benchmark 'nli' that is not known"),
        ({"benchmark": "rte", "only": 3}, r"reading\.json: "),
        ({"benchmark": "rte", "texts": "a"}, "does not describe how files are read"),
    ],
)
def test_what_is_no_reading_of_a_benchmark_is_refused(tmp_path: Path, told: dict[str, Any], message: str) -> None:
    (tmp_path / "reading.json").write_text(json.dumps(told), encoding="utf-8")
    with pytest.raises(DataError, match=message):
        load_read_as(tmp_path)
