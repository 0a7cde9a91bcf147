"""What tests of fine-tuning share: a machine whose speed need not be measured first."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from maskwright.core.devices import choose_device
from maskwright.finetuning import evaluating, finetuning
from maskwright.training.device import Machine, Precision


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the second in which a machine's speed is measured, and leave this process's memory as it is."""

    def prepared(device: str, matmul: str | None, cache: Path | None, precision: Precision) -> Machine:
        # Any processor can compute in bf16; `prepare_machine` refuses those that have to emulate it.
        autocast = torch.bfloat16 if precision == "bf16" else None
        return Machine(choose_device(device), "a machine", 1, "default", 1e9, autocast)

    def again(begun: Mapping[str, Any], device: str, cache: Path | None, precision: Precision) -> tuple[Machine, str]:
        return prepared(device, None, cache, precision), ""

    monkeypatch.setattr(finetuning, "restore_machine", again)
    monkeypatch.setattr(evaluating, "prepare_machine", prepared)
    evaluating.machine_to_score.cache_clear()
