"""Small models on disk, to go on from and to learn from."""

from collections.abc import Sequence
from pathlib import Path

from toy_runs import OBJECTS, SUBJECTS, VERBS

from maskwright.checkpoints.checkpoint import Checkpoint, read_checkpoint, save_model
from maskwright.checkpoints.location import GENERATOR
from maskwright.checkpoints.sentence_folder import SentenceModules, write_sentence_modules
from maskwright.data.tokenizers.backends import WORDPIECE_NAMES, bert_normalizer, wordpiece_backend
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.recipes.catalog import resolve
from maskwright.recipes.recipe import Recipe
from maskwright.training.runs.checkpoint import save_models
from maskwright.training.start.existing import open_existing
from maskwright.training.steps.batches import StepBatch
from maskwright.training.steps.model import build_model
from maskwright.training.steps.optimizer import Optimizer
from maskwright.training.steps.step import Step, StepResult, TrainedModel
from maskwright.training.steps.update_rules import build_optimizer

SMALL = (
    "encoder.hidden_size=32",
    "encoder.num_heads=2",
    "encoder.num_layers=4",
    "encoder.intermediate_size=64",
    "encoder.max_positions=40",
    "encoder.initializer_range=0.3",  # Far from the usual 0.02, so that everything tells the models apart.
    'training.phases=[{"share": 1.0, "max_length": 32}]',
)


LENGTH = 100
"""Maximum length of `save_embedder`'s model, longer than the sequences of a short run."""


def take_step(
    model: TrainedModel, optimizer: Optimizer, batch: StepBatch, *, learning_rate: float, clip_norm: float, step: int
) -> StepResult:
    """Compute the gradients of a batch, clip and update."""
    taken = Step(model, optimizer, batch, step)
    taken.update(learning_rate, clip_norm)
    return taken.result()


def take_steps(
    recipe: Recipe, model: TrainedModel, batch: StepBatch, steps: int, *, learning_rate: float
) -> list[StepResult]:
    """Take steps on one batch, with the optimizer of a recipe."""
    optimizer = build_optimizer(model.named_parameters(), recipe.training.optimizer, peak=recipe.training.learning_rate)
    return [
        take_step(model, optimizer, batch, learning_rate=learning_rate, clip_norm=1.0, step=number)
        for number in range(steps)
    ]


def toy_tokenizer() -> Tokenizer:
    """A WordPiece tokenizer of the letters and the words of `toy_runs`."""
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    words = sorted({word for text in (*SUBJECTS, *VERBS, *OBJECTS) for word in text.split()} - set(letters))
    entries = [*WORDPIECE_NAMES, ".", *letters, *(f"##{letter}" for letter in letters), *words]
    vocabulary = {entry: number for number, entry in enumerate(entries)}
    return Tokenizer(wordpiece_backend(vocabulary, normalizer=bert_normalizer(lowercase=True)), WORDPIECE_NAMES)


def save_toy(folder: Path, recipe: str, *overrides: str, seed: int = 1, tokenizer: Tokenizer | None = None) -> Path:
    """Write a random model of a recipe as a run leaves it, its generator too."""
    tokenizer = tokenizer or toy_tokenizer()
    vocab_size = tokenizer.special_tokens.vocab_size
    chosen = resolve(recipe, small(vocab_size, *overrides))
    model = build_model(chosen, vocab_size)
    model.initialize(seed)
    save_models(folder, chosen, model, tokenizer.special_tokens)
    for target in (folder,) if model.generator is None else (folder, folder / GENERATOR):
        tokenizer.save(target)
    return folder


def saved(folder: Path, recipe: str, *overrides: str, seed: int = 1) -> Checkpoint:
    """A random model of a recipe, written and opened."""
    return open_existing(str(save_toy(folder, recipe, *overrides, seed=seed)))


def small(vocab_size: int, *overrides: str) -> Sequence[str]:
    """The overrides that make any recipe as small as the models of `save_toy`."""
    return (*SMALL, f"tokenizer.vocab_size={max(100, vocab_size)}", *overrides)


def save_embedder(run: Path, made: Path) -> Path:
    """Write the encoder of a run without its heads as a folder of sentence-transformers."""
    source, tokenizer = read_checkpoint(run), Tokenizer.from_folder(run)
    save_model(
        made,
        family="bert",
        config=source.config,
        special_tokens=tokenizer.special_tokens,
        state={name: tensor for name, tensor in source.state.items() if name.startswith("encoder.")},
        max_length=LENGTH + 20,
    )
    tokenizer.save(made, max_length=LENGTH + 20)
    modules = SentenceModules(pooling="first", normalize=True)
    write_sentence_modules(made, modules, hidden_size=source.config.hidden_size, max_length=LENGTH)
    return made
