"""Datasets of the hub are streamed; whatever goes wrong there is one clear error."""

import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from maskwright.core.errors import DataError
from maskwright.data.sources.arguments import HubDataset
from maskwright.data.sources.tables import hub_documents

DATASET = HubDataset("owner/name", None, "train")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    state = SimpleNamespace(rows=[{"id": 1, "text": "One."}, {"id": 2, "text": None}], fails_after=None, asked=None)

    def load_dataset(*arguments: Any, **options: Any) -> Iterator[dict[str, Any]]:
        state.asked = (arguments, options)
        for number, row in enumerate(state.rows):
            if number == state.fails_after:
                raise ConnectionError("the hub does not answer\nand more lines")
            yield row

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))  # type: ignore[arg-type]
    return state


def test_column_is_chosen_or_found(hub: SimpleNamespace) -> None:
    hub.rows = [{"title": "t", "body": "b"}]
    assert list(hub_documents(DATASET, "body")) == ["b"]
    with pytest.raises(DataError, match="several columns"):
        list(hub_documents(DATASET, None))


@pytest.mark.parametrize(("after", "says"), [(0, "at its start"), (1, "after 1 rows")])
def test_failure_of_the_hub_is_told(hub: SimpleNamespace, after: int, says: str) -> None:
    hub.fails_after = after
    with pytest.raises(DataError, match=rf"owner/name.*{says}.*the hub does not answer\. Check the name"):
        list(hub_documents(DATASET, None))
