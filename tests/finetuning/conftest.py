"""Fixtures of fine-tuning tests: a machine whose speed need not be measured first."""

import pytest
import torch

from maskwright.finetuning import evaluate, finetune
from maskwright.inference import precision as inference_precision
from maskwright.machine.devices import choose_device
from maskwright.training.ranks.device import Machine


@pytest.fixture(scope="module", autouse=True)
def at_once():
    """Leave out the second in which a machine's speed is measured, and leave this process's memory as it is."""

    # Any processor can compute in bf16; those that have to emulate it are not asked to.
    def prepared(device, matmul, cache, precision):
        autocast = torch.bfloat16 if precision == "bf16" else None
        return Machine(choose_device(device), "a machine", 1, "default", autocast)

    def again(begun, device, cache, precision):
        return prepared(device, None, cache, precision), ""

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finetune, "restore_machine", again)
        patch.setattr(evaluate, "prepare_machine", prepared)
        patch.setattr(inference_precision, "multiplies_bf16", lambda device: True)
        evaluate.machine_to_score.cache_clear()
        yield
