"""A fine-tuned model: an encoder with a task head. Build it from a pretrained model, save it, load it.

config.json, model.safetensors, tokenizer*   as transformers writes them: its Auto classes and pipelines load the folder
task.json                                    the task (`tasks.task_from_json`)
reading.json                                 how the training file was read, if known (`labeled.load_read_as`)
"""

import copy
from collections.abc import Mapping, Set
from dataclasses import replace
from pathlib import Path
from typing import final

import torch
from torch import Tensor, nn

from maskwright.checkpoints.checkpoint import Checkpoint, save_model
from maskwright.checkpoints.families import family_named
from maskwright.checkpoints.families.base import TaskHead
from maskwright.checkpoints.sentence_folder import MODULES
from maskwright.core.errors import ConversionError, RecipeError
from maskwright.core.storage.files import write_json
from maskwright.core.tensors import LossTerm
from maskwright.core.types import FamilyName, HeadKind
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.finetuning.features import FeatureBatch, Layout
from maskwright.finetuning.labeled import load_read_as, save_read_as
from maskwright.finetuning.model.heads import Head
from maskwright.finetuning.model.mean_layer import with_mean_layer
from maskwright.finetuning.readers.options import ReadAs
from maskwright.finetuning.tasks import TASK_FILE, entries_of, infer_task, read_task, same_labels
from maskwright.finetuning.tasks.base import Task
from maskwright.finetuning.tasks.texts import Regression
from maskwright.model.encoder import Encoder
from maskwright.model.initialization import initialize
from maskwright.training.start.existing import open_existing, parts_of


@final
class FineTunedModel(nn.Module):
    """An encoder with a task head (a `training.steps.step.TrainedModel`). Parameter names are "encoder.*" and "head.*".

    `max_length` includes special tokens. `read_as` says how the training file was read, empty if unknown. `notes` are
    messages on loaded, newly initialized and ignored weights.
    """

    uses_graphs = False

    def __init__(
        self, *, encoder: Encoder, head: Head, task: Task, tokenizer: Tokenizer, family: FamilyName, max_length: int
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head
        self.task = task
        self.tokenizer = tokenizer
        self.family: FamilyName = family
        self.max_length = max_length
        self.read_as: ReadAs = {}
        self.notes: tuple[str, ...] = ()

    @property
    def layout(self) -> Layout:
        return Layout.of(self.encoder.config, self.tokenizer, self.max_length)

    def scores(self, batch: FeatureBatch) -> Tensor:
        """Return scores in fp32 (shapes: see `Task.loss`). Applies dropout in training mode, if the batch has a key."""
        scores: Tensor = self.head(self.encoder(batch.batch, self.head.output_positions(batch)), batch)
        return scores

    def scores_of(self, hidden: Tensor) -> Tensor:
        """Return scores without dropout for hidden states (W, H) of the tokens that the head needs (see `scores`)."""
        return self.head.score(hidden if self.encoder.pooler is None else self.encoder.pool(hidden))

    @property
    def objectives(self) -> tuple[Task]:
        return (self.task,)

    def losses(self, micro_batch: FeatureBatch) -> dict[str, LossTerm]:
        """Return the task's summed loss, 0 without labels."""
        scores, labels = self.scores(micro_batch), micro_batch.labels
        total = 0.0 * scores.sum() if labels is None else self.task.loss(scores, labels, micro_batch)
        return {self.task.kind: LossTerm(total, correct=None)}

    def as_saved(self) -> "FineTunedModel":
        """Return the model as `save` writes it; its predictions equal those of the saved model bit for bit.

        For a regression, `scale` and `offset` are folded into the last layer, since transformers' class has no other
        place for them; the encoder is shared. Other models are returned as they are.
        """
        task = self.task
        if not isinstance(task, Regression):
            return self
        saved = copy.deepcopy(self, {id(shared): shared for shared in (self.encoder, self.tokenizer)})
        with torch.no_grad():
            saved.head.output.weight.mul_(task.scale)
            saved.head.output.bias.mul_(task.scale).add_(task.offset)
        saved.task = task.replace(scale=1.0, offset=0.0)
        return saved

    def save(self, folder: Path) -> None:
        """Write the model (`as_saved`) as a folder of the family's class for the task; keep other files."""
        saved = self.as_saved()
        task, prefix = saved.task, f"heads.{saved.task.head}."
        write_json(folder / TASK_FILE, task.to_json())
        save_read_as(folder, self.read_as)
        self.tokenizer.save(
            folder, max_length=self.max_length, segments=self.layout.segments, split_special_tokens=True
        )
        save_model(
            folder,
            family=self.family,
            config=self.encoder.config,
            special_tokens=self.tokenizer.special_tokens,
            state={
                prefix + name.removeprefix("head.") if name.startswith("head.") else name: tensor
                for name, tensor in saved.state_dict().items()
            },
            max_length=self.max_length,
            task=entries_of(task, self.head.rate),
        )


def build(
    model: str | Path | Checkpoint,
    task: Task,
    *,
    seed: int,
    max_length: int | None = None,
    hidden_dropout: float | None = None,
    attention_dropout: float | None = None,
    head_dropout: float | None = None,
    from_scratch: bool = False,
    mean_layer: bool = False,
) -> FineTunedModel:
    """Add a task head to a pretrained encoder, in evaluation mode, on the CPU.

    Pretraining heads are dropped. The head is newly initialized, as is a pooler that the head needs and the model
    lacks. A model fine-tuned for the same meaningful labels, for question answering or multiple choice keeps its head.

    Args:
        model: A run's folder, a Hugging Face folder or a hub name, or what `open_existing` read (copied).
        seed: Keys the new weights: each is a function of the seed and its name.
        max_length: Maximum tokens of a sequence; None for the longest in pretraining.
        hidden_dropout, attention_dropout: Rates in the encoder; None for those of pretraining.
        head_dropout: Rate before the head's last layer; None for the class's default.
        from_scratch: Initialize all weights; keep only the model's shape and tokenizer.
        mean_layer: Give a new head of whole sequences the mean of the hidden states (`mean_layer.with_mean_layer`).

    Raises:
        MaskwrightError: If there is no such model, or it has too few positions for `max_length`.
    """
    existing = model if isinstance(model, Checkpoint) else open_existing(str(model))
    keeps_head = existing.task is not None and same_labels(existing.task, task) and not from_scratch
    if mean_layer and task.head == "sequence" and not keeps_head:
        existing = with_mean_layer(existing)
    row = family_named(existing.family).tasks[task.head]
    dropouts = {"hidden_dropout": hidden_dropout, "attention_dropout": attention_dropout}
    config = existing.config.replace(
        pooler=row.source == "pooled", **{name: rate for name, rate in dropouts.items() if rate is not None}
    )
    length = min(existing.max_length, config.max_positions) if max_length is None else max_length
    if length > config.max_positions:
        raise RecipeError(
            f"max_length is {length}, but {existing.name} has {config.max_positions} positions",
            hint=f"Give `--set max_length={config.max_positions}` or less.",
        )
    if head_dropout is not None and row.dropout is not None and row.dropout.name is not None:
        rate = head_dropout
    elif keeps_head and existing.task is not None:
        rate = existing.task.dropout
    else:
        rate = row.dropout.rate(None, config.hidden_dropout) if row.dropout else 0.0
    existing = replace(existing, config=config)
    built = _assemble(existing, task, row, rate, length).to_empty(device="cpu")
    initialize(built, config, seed)
    if from_scratch:
        built.notes = (f"all weights are newly initialized; shape and tokenizer are those of {existing.name}",)
        return built.eval()
    wanted = built.state_dict().keys()
    state = _to_internal_names(existing, task)
    loaded = {name for name in wanted & state.keys() if keeps_head or not name.startswith("head.")}
    _load_weights(built, {name: state[name] for name in loaded})
    notes = _weight_notes(existing, task.head, row, loaded=loaded, wanted=wanted, ignored=state.keys() - wanted)
    if length > existing.max_length:
        notes.append(
            f"{existing.name} was trained on sequences of {existing.max_length} tokens; positions beyond, up to "
            f"{length}, are untrained"
        )
    if head_dropout is not None and head_dropout != rate:
        notes.append(f"head_dropout is {rate:g}: {row.architecture} has no setting for it")
    built.notes = tuple(notes)
    return built.eval()


def load(folder: str | Path | Checkpoint) -> FineTunedModel:
    """Load a fine-tuned model, in evaluation mode, on the CPU. No code of the folder is executed.

    `folder` was written by `FineTunedModel.save`, or is a folder or hub name of a transformers class for sequence or
    token classification, question answering or multiple choice; its task follows from its class and labels. A folder
    that was read is not read again.

    Raises:
        MaskwrightError: If there is no fine-tuned model, or its files do not fit together.
    """
    existing = folder.trimmed() if isinstance(folder, Checkpoint) else open_existing(str(folder))
    entries = existing.task
    if entries is None:
        folder = existing.name
        raise ConversionError(
            f"{folder} is a pretrained model, not a fine-tuned one",
            allowed="a folder that `maskwright finetune` wrote, or one of a transformers class for sequence or token "
            "classification, question answering or multiple choice",
            hint=f"Use `maskwright embed {folder}` or `maskwright evaluate {folder}`"
            if (existing.folder / MODULES).is_file()
            else f"Fine-tune it first: `maskwright finetune {folder} --task ...`",
        )
    row = family_named(existing.family).tasks[entries.head]
    path = existing.folder / TASK_FILE
    task = read_task(path, entries) if path.exists() else infer_task(entries, existing.folder)
    needs_pooler = row.source == "pooled"
    if needs_pooler and not existing.config.pooler:
        raise ConversionError(
            f"the weights in {existing.folder} lack the pooler, which {row.architecture} has",
            hint="Download the weights again, or fine-tune again.",
        )
    existing = replace(existing, config=existing.config.replace(pooler=needs_pooler))
    built = _assemble(existing, task, row, entries.dropout, existing.max_length)
    state = _to_internal_names(existing, task)
    _load_weights(built, {name: state[name] for name in built.state_dict()})
    built.read_as = load_read_as(existing.folder)
    if not path.exists():
        labels = f" with the labels {', '.join(task.labels)}" if task.labels else ""
        built.notes = (
            f"{existing.name} has no {TASK_FILE}: task inferred from its class {row.architecture}: {task.kind}{labels}",
        )
    return built.eval()


def _assemble(existing: Checkpoint, task: Task, row: TaskHead, rate: float, max_length: int) -> FineTunedModel:
    """Assemble the model without weights (on the meta device)."""
    tokenizer, config = existing.tokenizer, existing.config
    with torch.device("meta"):
        encoder = Encoder(config, tokenizer.special_tokens.vocab_size)
        head = Head(row, config, task.num_outputs, rate)
    return FineTunedModel(
        encoder=encoder, head=head, task=task, tokenizer=tokenizer, family=existing.family, max_length=max_length
    )


def _load_weights(built: FineTunedModel, state: Mapping[str, Tensor]) -> None:
    """Load weights; those that are missing stay as they are."""
    # Cloned: in a memory-mapped file their alignment varies, and some kernels then round differently.
    built.load_state_dict({name: tensor.clone() for name, tensor in state.items()}, assign=True, strict=False)


def _to_internal_names(existing: Checkpoint, task: Task) -> dict[str, Tensor]:
    prefix = f"heads.{task.head}."
    return {
        "head." + name.removeprefix(prefix) if name.startswith(prefix) else name: tensor
        for name, tensor in existing.state.items()
    }


def _weight_notes(
    existing: Checkpoint, head: HeadKind, row: TaskHead, *, loaded: Set[str], wanted: Set[str], ignored: Set[str]
) -> list[str]:
    """Return messages about the weights that were loaded, newly initialized and ignored, given their names."""
    new, dropped = parts_of(wanted - loaded), sorted(parts_of(ignored))
    if existing.task is not None and existing.task.head == head and "head" in new:
        dropped.append(f"its head for {', '.join(existing.task.labels)}")
    return [
        f"loaded from {existing.name}: {', '.join(sorted(parts_of(loaded)))}",
        *([f"newly initialized: {', '.join(sorted(new))} (of {row.architecture})"] if new else []),
        *([f"ignored: {', '.join(dropped)}"] if dropped else []),
    ]
