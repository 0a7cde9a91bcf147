"""Where and how exactly a fine-tuned model is asked: on the machine that it would be trained on."""

import functools

from maskwright.training.device import Machine, Precision, prepare_machine


@functools.cache
def machine_to_score(device: str, precision: Precision) -> Machine:
    """Choose device, precision and library of matrix products, as training does; looked at once in a process.

    Scores of `evaluate` are then those that `finetune` measured on the same examples (to rounding, where a run goes on
    with other code than this machine would choose).

    Args:
        device: "auto", "cpu", "cuda" or "cuda:N".
        precision: "auto", "fp32" or "bf16" (`prepare_machine`).

    Raises:
        DeviceError: If there is no such device, no such precision, or the device does not have it.
    """
    return prepare_machine(device, None, None, precision)
