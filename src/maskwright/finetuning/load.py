"""`maskwright.load`: a pretrained or fine-tuned model in memory."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from maskwright.checkpoints.checkpoint import read_checkpoint
from maskwright.finetuning.model import fine_tuned
from maskwright.finetuning.model.fine_tuned import FineTunedModel
from maskwright.finetuning.predict import predict
from maskwright.finetuning.predictions import Predictions
from maskwright.inference import model as pretrained
from maskwright.inference.model import Model
from maskwright.inference.precision import Precision, choose_precision
from maskwright.machine.devices import choose_device


@final
@dataclass(eq=False, kw_only=True, repr=False)
class TaskModel(Model):
    """A fine-tuned model: it predicts what it was fine-tuned for, and embeds texts."""

    fine_tuned: FineTunedModel

    def predict(self, inputs: Any = (), **options: Any) -> Predictions:
        """Predict with the task head: `maskwright.predict` with this model, with the same options."""
        return predict(self, inputs, **options)

    def with_task(self) -> FineTunedModel:
        return self.fine_tuned

    def _purpose(self) -> str:
        task = self.fine_tuned.task
        return f"{task.kind} ({', '.join(task.labels)})" if task.labels else task.kind


def load(model: str | Path, *, device: str = "auto", precision: Precision = "fp32") -> Model:
    """Load a pretrained or fine-tuned model for inference, without dropout. No code of the folder is executed.

    Args:
        model: A run directory, an output folder of `finetune`, a Hugging Face directory or hub name of a BERT, RoBERTa,
            XLM-RoBERTa, CamemBERT, ALBERT, ELECTRA, DistilBERT, ERNIE 1.0 or ModernBERT. A generator in its
            subdirectory "generator" is loaded too.
        device: auto (a GPU if there is one), cpu, cuda or cuda:N.
        precision: Precision of matrix multiplications: fp32, bf16, int8 (on a CPU; faster, less exact), or auto (bf16
            on a GPU that supports it, else fp32). In Python: fp32 with the warning `PrecisionWarning` if the device
            does not support it.

    Returns:
        A model with `embed` and, where it has the heads, `fill_mask` and `detect`; of a fine-tuned one with `predict`.

    Raises:
        MaskwrightError: If there is no such model or device, or the model's files do not fit together.

    Examples:
        >>> maskwright.load("runs/quickstart").embed(["A first text.", "A second one."]).shape
        (2, 256)
        >>> maskwright.load("runs/reviews").predict(["A fine film."])[0].value
        'good'
    """
    checkpoint = read_checkpoint(model)
    if checkpoint.task is None:
        return pretrained.load(checkpoint, device=device, precision=precision)
    location = choose_device(device)
    tuned = fine_tuned.load(checkpoint).to(location)
    return TaskModel(
        name=checkpoint.name,
        tokenizer=tuned.tokenizer,
        encoder=tuned.encoder,
        max_length=tuned.max_length,
        precision=choose_precision(precision, location),
        fine_tuned=tuned,
    )
