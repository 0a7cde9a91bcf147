"""The parts of sentence-transformers that train and evaluate: losses, evaluators, trainer. Needs its extra."""

import contextlib
import math
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.base.sampler import DefaultBatchSampler
from sentence_transformers.sentence_transformer.data_collator import SentenceTransformerDataCollator
from sentence_transformers.sentence_transformer.evaluation import (
    EmbeddingSimilarityEvaluator,
    InformationRetrievalEvaluator,
    TripletEvaluator,
)
from sentence_transformers.sentence_transformer.losses import CoSENTLoss, MatryoshkaLoss, MultipleNegativesRankingLoss
from torch import nn
from torch.utils.data import RandomSampler
from transformers import PrinterCallback, TrainerCallback, TrainerState, set_seed

from maskwright.checkpoints.checkpoint import Checkpoint
from maskwright.checkpoints.sentence_folder import save_sentence_folder
from maskwright.core.errors import TrainingError
from maskwright.finetuning.embedding.data import EmbeddingSettings, Rows, Texts, rows_of
from maskwright.finetuning.examples import TextExample
from maskwright.finetuning.metrics.scores import comparable
from maskwright.inference.model import Model
from maskwright.machine.contention import SpinControl
from maskwright.reporting.reporter import Reporter
from maskwright.reporting.trackers import TrackedRun, Trackers, status_at_end
from maskwright.training.ranks.device import Machine
from maskwright.training.ranks.interrupt import StopRequest
from maskwright.training.runs.run_directory import RunDirectory

METRICS: Mapping[Rows, tuple[str, ...]] = {
    "scored pairs": ("spearman_cosine", "pearson_cosine"),
    "pairs": ("cosine_ndcg@10", "cosine_mrr@10", "cosine_accuracy@1"),
    "triplets": ("cosine_accuracy",),
}
"""Reported metrics of the evaluators, the main one first; texts alone cannot be evaluated."""

_PartScores = Mapping[str, Mapping[str, float]]
"""Metrics by part: "dev", "test"."""


def _evaluator(rows: Rows, examples: Sequence[TextExample], size: int | None = None) -> Any:
    """Return the evaluator of rows; `size` is the number of dimensions that are used, None for all."""
    options = {"truncate_dim": size, "write_csv": False}
    columns = [list(column) for column in zip(*(example.texts for example in examples), strict=True)]
    if rows == "scored pairs":
        return EmbeddingSimilarityEvaluator(*columns, [example.label for example in examples], **options)
    if rows == "triplets":
        return TripletEvaluator(*columns, **options)
    # Each text once: the second texts of all pairs are searched, and equal first texts share their right ones.
    relevant: dict[str, set[str]] = {}
    for first, second in zip(*columns, strict=True):
        relevant.setdefault(first, set()).add(second)
    queries, corpus = ({text: text for text in dict.fromkeys(column)} for column in columns)
    return InformationRetrievalEvaluator(queries, corpus, relevant, **options)


def _scores(evaluator: Any, model: SentenceTransformer, rows: Rows) -> dict[str, float]:
    values = evaluator(model)
    return {name: float(values[name]) for name in METRICS[rows]}


def score_model(
    model: Model, folder: Path, rows: Rows, examples: Sequence[TextExample], options: Mapping[str, Any]
) -> dict[str, float]:
    """Return the metrics of a folder of sentence-transformers, as `train` computes them, of the vectors of `embed`.

    `options` are those of `embed`.
    """
    # The evaluators need a model of the library, for its prompts and similarity function; only `encode` is replaced.
    library_model = SentenceTransformer(str(folder), device="cpu")

    def encode(
        inputs: Sequence[str],
        prompt_name: str | None = None,
        prompt: str | None = None,
        *,
        convert_to_tensor: bool = False,
        **_: Any,
    ) -> Any:
        prefix = prompt or library_model.prompts.get(prompt_name or library_model.default_prompt_name or "", "")
        vectors = model.embed([prefix + text for text in inputs], **options)
        return torch.from_numpy(vectors) if convert_to_tensor else vectors

    library_model.encode = encode
    return _scores(_evaluator(rows, examples), library_model, rows)


class _ReseededBatchSampler(DefaultBatchSampler):  # type: ignore[misc]
    """Shuffled batches whose order depends on the epoch alone, so that a resumed epoch has the same batches."""

    def __iter__(self) -> Any:
        self.generator.manual_seed(self.seed + self.epoch)
        return super().__iter__()


def _batch_sampler(dataset: Any, *, generator: Any, **settings: Any) -> Any:
    return _ReseededBatchSampler(RandomSampler(dataset, generator=generator), generator=generator, **settings)


class _Trainer(SentenceTransformerTrainer):  # type: ignore[misc]
    """The trainer, without model cards: they quote training texts, and look up models and datasets on the hub."""

    def add_model_card_callback(self, default_args_dict: Any) -> None:
        pass

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        # Losses are looked at every 10 steps. The last step is followed by a checkpoint too.
        if not all(bool(weights.isfinite().all()) for weights in self.model.parameters()):
            raise _diverged(f"a weight is not finite at step {self.state.global_step}")
        self.model.save_pretrained(output_dir, create_model_card=False)


_SECONDS = "maskwright_seconds"
"""Key of the time of all steps in the trainer's state, which checkpoints keep; evaluations are not counted."""


class _Session(TrainerCallback):  # type: ignore[misc]
    """Stops and saves on request, saves by the clock, reports progress.

    At the end of an epoch the trainer itself evaluates and saves. Elsewhere nothing is evaluated, so that a resumed
    training selects among the same epochs.
    """

    def __init__(
        self, stop: StopRequest, seconds: float, main: str | None, trackers: Trackers, reporter: Reporter
    ) -> None:
        self.stop, self.seconds, self.main, self.trackers, self.reporter = stop, seconds, main, trackers, reporter
        self.saved = time.monotonic()
        self.began, self.knows_seconds = 0.0, True
        self.stopped = False
        self.spin_control = SpinControl()

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        # A checkpoint of an earlier version does not say how long its steps took.
        self.knows_seconds = not state.global_step or _SECONDS in state.stateful_callbacks
        self.began = time.monotonic() - state.stateful_callbacks.get(_SECONDS, 0.0)

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        if self.knows_seconds:
            state.stateful_callbacks[_SECONDS] = time.monotonic() - self.began
        self.spin_control.check()
        if state.global_step % len(others["train_dataloader"]) and state.global_step < state.max_steps:
            self.stopped = control.should_training_stop = bool(self.stop)
            control.should_save = self.stopped or time.monotonic() - self.saved > self.seconds

    def on_epoch_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        if self.stopped:
            control.should_evaluate = control.should_save = False
        elif self.stop and state.global_step < state.max_steps:
            self.stopped = control.should_training_stop = True

    def on_save(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self.saved = time.monotonic()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **others: Any) -> None:
        self.trackers.log({k: v for k, v in (logs or {}).items() if isinstance(v, float)}, state.global_step)
        if (loss := (logs or {}).get("loss")) is None:
            return
        if not math.isfinite(float(loss)):
            raise _diverged(f"the loss is {loss} at step {state.global_step}")
        text = f"step {state.global_step:,} of {state.max_steps:,}  loss {float(loss):.4f}"
        self.reporter.training(state.global_step / state.max_steps, text)

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **others: Any) -> None:
        score = (metrics or {}).get(f"eval_{self.main}")
        if score is not None:
            self.reporter.message("dev", f"epoch {state.epoch:g}: {self.main} {score:.4f}")


def _diverged(problem: str) -> TrainingError:
    return TrainingError(problem, hint="Choose a lower --set learning_rate and a new --out folder.")


def _model(existing: Checkpoint, dropout: float, seed: int) -> SentenceTransformer:
    set_seed(seed)  # A pooler that the model lacks is random.
    with tempfile.TemporaryDirectory() as start:
        # The loss and `sizes` are of the whole vectors.
        model = existing.to_sentence_transformer(Path(start), replace(existing.modules, truncate_dim=None))
    # As published for fine-tuning and SimCSE, whatever the model was pretrained with: without it SimCSE learns nothing.
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = dropout
    return model


def _arguments(
    checkpoints: Path, rows: Rows, settings: EmbeddingSettings, main: str | None, seed: int, machine: Machine
) -> SentenceTransformerTrainingArguments:
    """Return the trainer's arguments; `main` is the metric on development examples, None without any."""
    use_cpu = machine.device.type == "cpu"
    args = SentenceTransformerTrainingArguments(
        output_dir=str(checkpoints),
        num_train_epochs=settings.epochs,
        per_device_train_batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        warmup_steps=settings.warmup_share,
        weight_decay=settings.weight_decay,
        # MultipleNegativesRankingLoss takes the other texts of a batch as negatives.
        batch_sampler=_batch_sampler if rows == "scored pairs" else "no_duplicates",
        eval_strategy="no" if main is None else "epoch",
        save_strategy="epoch",
        save_total_limit=2,  # the best and the newest
        load_best_model_at_end=main is not None,
        metric_for_best_model=main,
        greater_is_better=True,
        logging_steps=10,
        logging_first_step=True,
        logging_nan_inf_filter=False,
        seed=seed,
        use_cpu=use_cpu,
        bf16=machine.autocast is not None,
        report_to="none",
        disable_tqdm=True,
    )
    if not use_cpu:
        args._n_gpu = 1  # else it splits batches between all GPUs, and with them the negatives
    return args


def train(
    existing: Checkpoint,
    parts: Mapping[str, Texts],
    settings: EmbeddingSettings,
    seed: int,
    folder: RunDirectory,
    machine: Machine,
    checkpoint_seconds: float,
    stop: StopRequest,
    trackers: Sequence[str],
    reporter: Reporter,
) -> dict[str, Any] | None:
    """Train, or resume from the newest checkpoint, and write the model into the folder.

    With development examples, the weights of the best epoch by their main metric are kept, or the untouched ones if
    these are better; else those of the last epoch. Returns "row", the fields of a `SeedRow`; "before", the scores
    before training by part; "trained", those of the best epoch; "sizes", those of the kept model by number of
    dimensions; "loss", its name. None if a stop was requested, after a checkpoint was saved. Raises TrainingError if a
    loss or a weight is not finite.
    """
    model, modules = _model(existing, settings.dropout, seed), existing.modules
    model.to(machine.device)
    rows, examples = {name: rows_of(part) for name, part in parts.items()}, parts["train"].examples
    kind = rows["train"]
    loss, loss_name = _loss(model, kind, settings.dimensions)
    reporter.message(
        "plan",
        f"{existing.name} on {len(examples):,} {kind} with {loss_name} into {folder.path}: "
        f"{settings.epochs:g} epoch{'s' * (settings.epochs != 1)}, batch size {settings.batch_size}, peak learning "
        f"rate {settings.learning_rate:g}, up to {settings.max_length} tokens",
    )
    evaluators = {
        name: _evaluator(rows[name], part.examples, modules.truncate_dim)
        for name, part in parts.items()
        if name != "train"
    }
    dev, main = (evaluators["dev"], METRICS[rows["dev"]][0]) if "dev" in parts else (None, None)

    def scores() -> dict[str, dict[str, float]]:
        return {name: _scores(evaluator, model, rows[name]) for name, evaluator in evaluators.items()}

    before = scores()
    # The last file of a checkpoint: one without it was not finished.
    saved = [path.parent for path in folder.checkpoints.glob("checkpoint-*/trainer_state.json")]
    steps = max((int(path.name.rpartition("-")[2]) for path in saved), default=0)
    tracked = TrackedRun(
        folder=folder.path, name=folder.path.absolute().name, settings=settings.model_dump(mode="json"), last_step=steps
    )
    session = _Session(stop, checkpoint_seconds, main, Trackers(trackers, tracked, reporter), reporter)
    trainer = _Trainer(
        model=model,
        args=_arguments(folder.checkpoints, kind, settings, main, seed, machine),
        train_dataset=_dataset(kind, examples),
        # Texts are shortened in training only: scores are those of whole texts.
        data_collator=SentenceTransformerDataCollator(model.preprocess, max_length=settings.max_length),
        loss=loss,
        evaluator=dev,
        callbacks=[session],
    )
    trainer.remove_callback(PrinterCallback)
    with contextlib.closing(session.spin_control), contextlib.ExitStack() as at_end:
        at_end.push(lambda error, *_: session.trackers.close(status_at_end(error, not session.stopped)))
        trainer.train(resume_from_checkpoint=str(folder.checkpoints / f"checkpoint-{steps}") if steps else None)
    if session.stopped:
        return None
    trained, state = scores(), trainer.state
    kept, best_step = trained, state.best_global_step or state.global_step
    is_worse, is_rising = _development(before, trained, main, state)
    if is_worse:
        model, kept, best_step = _model(existing, settings.dropout, seed), before, 0
    sizes = {
        str(size): {
            name: _scores(_evaluator(rows[name], parts[name].examples, size), model, rows[name]) for name in evaluators
        }
        for size in settings.dimensions
    }
    if settings.dimensions and best_step:
        model[0].auto_model.config.matryoshka_dimensions = list(settings.dimensions)
    model.truncate_dim = modules.truncate_dim
    save_sentence_folder(model.to("cpu"), folder.path, existing.tokenizer, existing.max_length)
    num_trained = round(state.epoch * len(examples))
    seconds = state.stateful_callbacks.get(_SECONDS)  # None if an earlier version trained some steps.
    row = {
        "seed": seed,
        "steps": state.global_step,
        "best_epoch": round(state.epoch * best_step / state.global_step, 4),
        "dev": kept.get("dev", {}),
        "test": kept.get("test"),
        "is_rising": is_rising,
        "examples": num_trained,
        "seconds": seconds and round(seconds, 3),
        "examples_per_second": seconds and round(num_trained / seconds, 2),
    }
    return {"row": row, "before": before, "trained": trained, "sizes": sizes, "loss": loss_name}


def _loss(model: SentenceTransformer, rows: Rows, dimensions: Sequence[int]) -> tuple[nn.Module, str]:
    """Return the loss of these rows and its name."""
    # CoSENTLoss: its documentation recommends it over CosineSimilarityLoss, a stronger signal. It reads only the order
    # of the scores, so that they need no scaling. The other loss makes SimCSE of texts (Gao et al. 2021): a text is its
    # own positive, with other dropout; temperature 0.05 is the loss's default.
    loss: nn.Module = CoSENTLoss(model) if rows == "scored pairs" else MultipleNegativesRankingLoss(model)
    name = type(loss).__name__
    if not dimensions:
        return loss, name
    matryoshka = MatryoshkaLoss(model, loss, [model.get_embedding_dimension(), *dimensions])
    return matryoshka, f"{name} at {', '.join(map(str, dimensions))} and all dimensions"


def _development(before: _PartScores, trained: _PartScores, main: str | None, state: TrainerState) -> tuple[bool, bool]:
    """Return whether dev is worse than before training, and whether it was best in the last epoch."""
    if main is None:
        return False, False
    first, best = (comparable(scores["dev"][main]) for scores in (before, trained))
    history = [comparable(entry[f"eval_{main}"]) for entry in state.log_history if f"eval_{main}" in entry]
    return best < first, bool(history) and history[-1] > max([first, *history[:-1]])


def _dataset(rows: Rows, examples: Sequence[TextExample]) -> Dataset:
    columns = [list(column) for column in zip(*(example.texts for example in examples), strict=True)]
    data = dict(zip(("anchor", "positive", "negative"), columns * (2 if rows == "texts" else 1), strict=False))
    if rows == "scored pairs":
        data["score"] = [example.label for example in examples]
    return Dataset.from_dict(data)
