import os
import signal

import pytest

from maskwright.training.checkpoint import CheckpointTimer
from maskwright.training.interrupt import stop_on_signals


def test_keeper_writes_each_step_once() -> None:
    written = list[int]()
    keeper = CheckpointTimer(lambda: written.append(1), -1, seconds=0.0)
    assert keeper.is_due()
    keeper.keep(3)
    keeper.keep(3)
    assert len(written) == 1
    assert keeper.is_due()


def test_keeper_waits_between_checkpoints() -> None:
    keeper = CheckpointTimer(lambda: None, -1, seconds=1000.0)
    assert not keeper.is_due()
    keeper.keep(1)
    assert not keeper.is_due()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_asks_and_a_second_one_interrupts(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with stop_on_signals() as stop:
        assert not stop
        os.kill(os.getpid(), number)
        assert stop
        assert stop.signal == number.name
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) == before
