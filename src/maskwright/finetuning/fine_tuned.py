"""A fine-tuned model: an encoder with a task head. Build it from a pretrained model, save it, load it.

config.json, model.safetensors, tokenizer*   as transformers writes them: its Auto classes and pipelines load the folder
task.json                                    the task (`tasks.task_from_json`)
reading.json                                 how the training file was read, if known (`reading_json`)
"""

import copy
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, final

import torch
from torch import Tensor, nn

from maskwright.core.errors import ConversionError, RecipeError
from maskwright.core.files import write_json
from maskwright.core.types import FamilyName, HeadKind
from maskwright.data.tokenizer import Tokenizer
from maskwright.finetuning.features import FeatureBatch
from maskwright.finetuning.heads import Head
from maskwright.finetuning.readers import ReadAs
from maskwright.finetuning.reading_json import load_read_as, save_read_as
from maskwright.finetuning.task_on_file import TASK_FILE, entries_of, guessed_task, means_the_same, read_task
from maskwright.finetuning.tasks.base import Task
from maskwright.finetuning.tasks.classification import Regression
from maskwright.huggingface.families import family_named
from maskwright.huggingface.families.base import TaskHead
from maskwright.huggingface.huggingface import save_model
from maskwright.model.config import EncoderConfig
from maskwright.model.encoder import Encoder
from maskwright.model.initialization import initialize
from maskwright.model.states import States
from maskwright.training.existing import ExistingModel, open_existing


@final
class FineTunedModel(nn.Module):
    """An encoder with a head for a task. Parameter names are "encoder.*" and "head.*".

    Args:
        encoder: The encoder; with a pooler if the head reads it.
        head: The head.
        task: What it is for.
        tokenizer: Its tokenizer.
        family: Hugging Face's model type.
        max_length: Tokens of a sequence at most, special ones counted.
        read_as: How its training file was read, for files that it meets later; empty where nobody says.
        notes: What is to be said of it: what was taken over, what is new, what was guessed.

    Attributes:
        encoder, head, task, tokenizer, family, max_length, read_as, notes: As given.
    """

    def __init__(
        self,
        *,
        encoder: Encoder,
        head: Head,
        task: Task[Any],
        tokenizer: Tokenizer,
        family: FamilyName,
        max_length: int,
        read_as: ReadAs = MappingProxyType({}),
        notes: tuple[str, ...] = (),
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head
        self.task = task
        self.tokenizer = tokenizer
        self.family: FamilyName = family
        self.max_length = max_length
        self.read_as: ReadAs = dict(read_as)
        self.notes = notes

    @property
    def segments(self) -> bool:
        """Whether the second text of a pair is segment 1 (see `reads_segments`)."""
        return reads_segments(self.encoder.config, self.tokenizer)

    def scores(self, batch: FeatureBatch, dropout_key: int | None = None) -> Tensor:
        """Score a batch, for training. Dropout is applied in training mode, if there is a key.

        Args:
            batch: Sequences, on the model's device.
            dropout_key: Key of the batch's dropout masks; None: the one that `batch.batch` carries, if any.

        Returns:
            Scores in fp32, of the shape that `Task.loss` tells.
        """
        key = batch.batch.dropout_key if dropout_key is None else dropout_key
        output = self.encoder(replace(batch.batch, dropout_key=key), self.head.reads(batch))
        scores: Tensor = self.head(output, batch, key)
        return scores

    def scores_from(self, states: States, batch: FeatureBatch) -> Tensor:
        """Score a batch without dropout, the encoder's hidden states computed by `states` (see `scores`)."""
        hidden = states(batch.batch, self.head.reads(batch))
        pooled = self.encoder.pooled(hidden, torch.arange(len(hidden), device=hidden.device)).pooled
        return self.head.score(hidden if pooled is None else pooled)

    def as_saved(self) -> "FineTunedModel":
        """Return the model as `save` writes it, so that what it says is what it will say, bit for bit.

        A regression that learnt numbers in units of its own (`scale`, from `offset`) has these in its last layer, since
        the class, and so transformers, has no other place for it. Its encoder is shared. Others are the model itself.
        """
        task = self.task
        if not isinstance(task, Regression):
            return self
        head = copy.deepcopy(self.head)
        with torch.no_grad():
            head.output.weight.mul_(task.scale)
            head.output.bias.mul_(task.scale).add_(task.offset)
        return FineTunedModel(
            encoder=self.encoder,
            head=head,
            task=replace(task, scale=1.0, offset=0.0),
            tokenizer=self.tokenizer,
            family=self.family,
            max_length=self.max_length,
            read_as=self.read_as,
            notes=self.notes,
        )

    def save(self, folder: Path) -> None:
        """Write the model (`as_saved`) as a folder of the family's class for the task; other files are left alone.

        Raises:
            ConversionError: If the class cannot hold the encoder.
            DeviceError: If the folder cannot be written.
        """
        saved = self.as_saved()
        task, state = saved.task, saved.state_dict()
        write_json(folder / TASK_FILE, task.to_json())
        save_read_as(folder, self.read_as)
        self.tokenizer.save(folder, max_length=self.max_length, segments=self.segments, split_special_tokens=True)
        save_model(
            folder,
            family=self.family,
            config=self.encoder.config,
            special_tokens=self.tokenizer.special_tokens,
            state={_filed(name, task): tensor for name, tensor in state.items()},
            max_length=self.max_length,
            task=entries_of(task, self.head.rate),
        )


def reads_segments(config: EncoderConfig, tokenizer: Tokenizer) -> bool:
    """Whether the second text of a pair is segment 1: if the encoder knows it, and transformers would do it too.

    What transformers does follows from the tokenizer: the byte-level one of RoBERTa calls both texts segment 0.
    """
    if config.type_vocab_size < 2:
        return False
    layout = tokenizer.backend.post_processor
    return layout is None or 1 in tokenizer.backend.encode("a", "a").type_ids


def build(
    model: str | Path,
    task: Task[Any],
    *,
    seed: int,
    max_length: int | None = None,
    hidden_dropout: float | None = None,
    attention_dropout: float | None = None,
    head_dropout: float | None = None,
    from_scratch: bool = False,
) -> FineTunedModel:
    """Put a head for a task on a pretrained encoder, in evaluation mode, on the CPU.

    The heads of pretraining are dropped. The head is new, and so is a pooler that the head needs and the model has not;
    but a model that was fine-tuned for the very same labels keeps its head, if their names tell what they mean, and one
    for answers or for options keeps it in any case.

    Args:
        model: A run's folder, a Hugging Face folder or a hub name.
        task: What to put a head on for.
        seed: Keys the new weights: each is a function of the seed and its name.
        max_length: Tokens of a sequence at most; None: the longest that the model was trained on.
        hidden_dropout: Share of hidden values dropped in the encoder; None: as it was pretrained.
        attention_dropout: Share of attention probabilities dropped; None: as it was pretrained.
        head_dropout: Share dropped before the head's last layer, where the class has such a rate of its own (the notes
            say where it has none); None: what the class assumes.
        from_scratch: Draw all weights anew: of the model are then its shape and its tokenizer.

    Raises:
        ConversionError: If there is no such model, or it does not fit together.
        RecipeError: If the model has no position for so long sequences.
    """
    existing = open_existing(str(model))
    row = family_named(existing.family).tasks[task.head]
    dropouts = {"hidden_dropout": hidden_dropout, "attention_dropout": attention_dropout}
    config = existing.config.replace(
        pooler=row.source == "pooled", **{name: rate for name, rate in dropouts.items() if rate is not None}
    )
    length = min(existing.max_length, config.max_positions) if max_length is None else max_length
    if length > config.max_positions:
        raise RecipeError(
            f"max_length is {length}, but {model} has learnt {config.max_positions} positions",
            todo=f"Give `--set max_length={config.max_positions}` or less.",
        )
    keeps_head = existing.task is not None and means_the_same(existing.task, task) and not from_scratch
    if head_dropout is not None and row.dropout is not None and row.dropout.name is not None:
        rate = head_dropout
    elif keeps_head and existing.task is not None:
        rate = existing.task.dropout
    else:
        rate = row.dropout.rate(None, config.hidden_dropout) if row.dropout else 0.0
    existing = replace(existing, config=config)
    built = _assemble(existing, task, row, rate, length)
    if from_scratch:
        built.to_empty(device="cpu")
        initialize(built, config, seed)
        built.notes = (f"all weights are drawn anew: {existing.name} gives its shape and its tokenizer",)
        return built.eval()
    wanted = built.state_dict().keys()
    state = _named_as_here(existing, task)
    taken = {name for name in wanted & state.keys() if keeps_head or not name.startswith("head.")}
    fresh = _new_weights(built, wanted - taken, seed)
    _put_in(built, {**state, **fresh})
    built.notes = (
        *taken_over(existing, task.head, row, taken=taken, fresh=fresh.keys(), left=state.keys() - wanted),
        *_remarks(existing, built, row, head_dropout),
    )
    return built.eval()


def load(folder: str | Path) -> FineTunedModel:
    """Read a fine-tuned model, in evaluation mode, on the CPU. No code of the folder is executed.

    Args:
        folder: What `FineTunedModel.save` wrote; or a folder or hub name of a transformers class for sequence or token
            classification, question answering or multiple choice, whose task is told by its class and its labels.

    Raises:
        ConversionError: If there is no fine-tuned model, or it does not fit together.
        DataError: If its tokenizer, its task or how its training file was read cannot be read.
    """
    existing = open_existing(str(folder))
    entries = existing.task
    if entries is None:
        raise ConversionError(
            f"{folder} holds no fine-tuned model, but a pretrained one",
            allowed="a folder that `maskwright finetune` wrote, or one of a transformers class for sequence or token "
            "classification, question answering or multiple choice",
            todo=f"Fine-tune it first: `maskwright finetune {folder} --task ...`",
        )
    row = family_named(existing.family).tasks[entries.kind]
    path = existing.folder / TASK_FILE
    task = read_task(path, entries) if path.exists() else guessed_task(entries, existing.folder)
    needs_pooler = row.source == "pooled"
    if needs_pooler and not existing.config.pooler:
        raise ConversionError(
            f"the weights in {existing.folder} lack the pooler, which {row.architecture} has",
            todo="Fetch the weights again, or fine-tune again.",
        )
    existing = replace(existing, config=existing.config.replace(pooler=needs_pooler))
    built = _assemble(existing, task, row, entries.dropout, existing.max_length)
    _put_in(built, _named_as_here(existing, task))
    built.read_as = load_read_as(existing.folder)
    if not path.exists():
        labels = f" with the labels {', '.join(task.labels)}" if task.labels else ""
        built.notes = (f"{folder} has no {TASK_FILE}: its class {row.architecture} is taken as {task.kind}{labels}",)
    return built.eval()


def _assemble(existing: ExistingModel, task: Task[Any], row: TaskHead, rate: float, max_length: int) -> FineTunedModel:
    """Put the parts together, without values: they are put in as they are."""
    tokenizer, config = existing.tokenizer, existing.config
    with torch.device("meta"):
        encoder = Encoder(config, tokenizer.special_tokens.vocab_size)
        head = Head(task.head, row, config, task.num_outputs, rate)
    return FineTunedModel(
        encoder=encoder, head=head, task=task, tokenizer=tokenizer, family=existing.family, max_length=max_length
    )


def _put_in(built: FineTunedModel, state: Mapping[str, Tensor]) -> None:
    """Give a model its weights, from a state that may hold more."""
    # In memory of their own: those of a mapped file lie as they come, and some kernels round otherwise there.
    built.load_state_dict({name: state[name].clone() for name in built.state_dict()}, assign=True)


def _new_weights(built: FineTunedModel, names: Iterable[str], seed: int) -> dict[str, Tensor]:
    """Draw the weights of these names; others cost no time."""
    layers: dict[str, dict[str, nn.Module]] = {"encoder": {}, "head": {}}
    for part in sorted({name.rpartition(".")[0] for name in names}):
        like = built.get_submodule(part)
        assert isinstance(like, nn.Linear)
        tower, _, layer = part.partition(".")
        layers[tower][layer] = nn.Linear(like.in_features, like.out_features)
    # Under their full names, of which their weights are a function.
    drawn = nn.ModuleDict({tower: nn.ModuleDict(its) for tower, its in layers.items()})
    initialize(drawn, built.encoder.config, seed)
    return dict(drawn.state_dict())


def _named_as_here(existing: ExistingModel, task: Task[Any]) -> dict[str, Tensor]:
    mine = f"heads.{task.head}."
    return {
        "head." + name.removeprefix(mine) if name.startswith(mine) else name: tensor
        for name, tensor in existing.state.items()
    }


def _filed(name: str, task: Task[Any]) -> str:
    return f"heads.{task.head}." + name.removeprefix("head.") if name.startswith("head.") else name


def _remarks(existing: ExistingModel, built: FineTunedModel, row: TaskHead, head_dropout: float | None) -> list[str]:
    remarks = []
    if built.max_length > existing.max_length:
        remarks.append(
            f"{existing.name} was trained on {existing.max_length} tokens; its positions beyond, up to "
            f"{built.max_length}, are still as they were drawn"
        )
    if head_dropout is not None and head_dropout != built.head.rate:
        remarks.append(
            f"{row.architecture} has no dropout of its own before its last layer, and drops {built.head.rate:g} there"
        )
    return remarks


def taken_over(
    existing: ExistingModel,
    head: HeadKind,
    row: TaskHead,
    *,
    taken: Collection[str],
    fresh: Collection[str],
    left: Collection[str],
) -> list[str]:
    """Say what a model was made of, a line each.

    Args:
        existing: The pretrained model.
        head: What the new model's head scores.
        row: How the family's class computes it.
        taken: Names of the weights taken over.
        fresh: Names of the weights drawn anew.
        left: Names of the pretrained model's weights that were left.
    """
    left_parts = _parts(left)
    if existing.task is not None and existing.task.kind == head and any("head." in name for name in fresh):
        left_parts = [*left_parts, f"its head for {', '.join(existing.task.labels)}"]
    return [
        f"taken from {existing.name}: {', '.join(_parts(taken))}",
        *([f"new: {', '.join(_parts(fresh))} (of {row.architecture})"] if fresh else []),
        *([f"left: {', '.join(left_parts)}"] if left_parts else []),
    ]


def _parts(names: Iterable[str]) -> list[str]:
    return sorted({_part(name) for name in names})


def _part(name: str) -> str:
    tower, _, rest = name.partition(".")
    if tower == "head":
        return "head"
    if tower == "heads":
        return f"head {rest.partition('.')[0]!r}"
    if "_blocks." in rest:
        return "layers"
    return "pooler" if rest.startswith("pooler.") else "embeddings"
