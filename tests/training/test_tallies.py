"""Sums over micro-batches: as exact as Python's own, whatever the parts are, and read when asked."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from maskwright.core.tensors import LossTerm
from maskwright.recipes.catalog import get
from maskwright.training.tallies import Sums, Tallies

PARTS = st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=20)


@given(PARTS, st.lists(st.integers(0, 1 << 40), min_size=1, max_size=20))
def test_sums_are_those_of_python_to_the_last_bit(losses: list[float], counts: list[int]) -> None:
    sums = Sums()
    for loss in losses:
        sums.add("loss", torch.tensor(loss, dtype=torch.float32, requires_grad=True))
    for count in counts:
        sums.add("count", torch.tensor(count))
    assert sums.read() == {"loss": sum(losses, 0.0), "count": sum(counts)}


def test_what_was_added_is_neither_changed_nor_kept_alive_by_gradients() -> None:
    sums, part = Sums(), torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    sums.add("loss", part)
    sums.add("loss", part * 3)
    assert sums.read() == {"loss": 8.0}
    assert float(part.detach()) == 2.0
    assert sums.read() == {"loss": 8.0}


def test_nothing_added_is_nothing_read() -> None:
    assert Sums().read() == {}
    (mlm,) = (each for each in get("bert/tiny").objectives if each.kind == "mlm")
    assert Tallies().details([mlm], {"mlm": 3}) == {}


def test_shares_are_of_all_micro_batches_together() -> None:
    (rtd,) = (each for each in get("electra/tiny").objectives if each.kind == "rtd")
    tallies = Tallies()
    for replaced, flagged, hit in ((3, 2, 1), (5, 2, 2)):
        counted = {"replaced": replaced, "flagged": flagged, "hit": hit}
        terms = {name: torch.tensor(value) for name, value in counted.items()}
        tallies.add("rtd", LossTerm(torch.tensor(1.0), 20, torch.tensor(9), tallies=terms))
    found = tallies.details([rtd], {"rtd": 40})["rtd"]
    assert (found["replaced"], found["precision"], found["recall"]) == (8 / 40, 3 / 4, 3 / 8)
