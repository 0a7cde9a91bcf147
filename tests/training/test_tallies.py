"""Sums over micro-batches are exact."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from maskwright.core.tensors import LossTerm
from maskwright.recipes.catalog import get
from maskwright.training.steps import step
from maskwright.training.steps.step import Sums, results_of

PARTS = st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=20)


@given(PARTS, st.lists(st.integers(0, 1 << 40), min_size=1, max_size=20))
def test_sums_are_those_of_python_to_the_last_bit(losses: list[float], counts: list[int]) -> None:
    sums = Sums()
    for loss in losses:
        sums.add("mlm", "loss", torch.tensor(loss, dtype=torch.float32, requires_grad=True))
    for count in counts:
        sums.add("mlm", "correct", torch.tensor(count))
    assert sums.to_host().read() == {"mlm": {"loss": sum(losses, 0.0), "correct": sum(counts)}}
    assert not sums.total("mlm", "loss").requires_grad


def test_nothing_added_gives_no_numbers() -> None:
    assert Sums().to_host().read() == {}
    assert results_of(get("bert/tiny").objectives, {"mlm": 0, "nsp": 0}, {}) == {}


def test_ranks_exchange_sums_in_the_order_of_names(monkeypatch: pytest.MonkeyPatch) -> None:
    exchanged = []

    class RecordedSum:
        def __init__(self, tensor: torch.Tensor) -> None:
            exchanged.append(tensor)

        def wait(self) -> torch.Tensor:
            return 2 * exchanged[-1]

    monkeypatch.setattr(step, "RankSum", RecordedSum)
    for kinds in (("mlm", "nsp"), ("nsp", "mlm")):
        sums = Sums()
        for kind in kinds:
            sums.add(kind, "loss", torch.tensor(1.0 if kind == "mlm" else 5.0))
        sums.all_reduce_sum()
        assert sums.to_host().read() == {"mlm": {"loss": 2}, "nsp": {"loss": 10}}
    assert exchanged[0].tolist() == exchanged[1].tolist()


def test_shares_are_of_all_micro_batches_together() -> None:
    (rtd,) = (each for each in get("electra/tiny").objectives if each.kind == "rtd")
    sums = Sums()
    for replaced, flagged, hit in ((3, 2, 1), (5, 2, 2)):
        counted = {"replaced": replaced, "flagged": flagged, "hit": hit}
        tallies = {name: torch.tensor(value) for name, value in counted.items()}
        sums.add_term("rtd", LossTerm(torch.tensor(1.0), torch.tensor(9), tallies=tallies))
    result = results_of([rtd], {"rtd": 40}, sums.to_host().read())["rtd"]
    assert (result.loss, result.accuracy) == (2 / 40, 18 / 40)
    assert result.details == {"replaced": 8 / 40, "precision": 3 / 4, "recall": 3 / 8}
