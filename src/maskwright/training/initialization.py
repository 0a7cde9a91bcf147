"""Initialization from existing models: which weights a run loads, what must match, what is newly initialized.

`--init` loads a model of the same shape, whatever its objectives were. A student loads some of its teacher's layers
(`recipes.recipe.Teacher.initialise`).
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from maskwright.core.errors import RecipeError
from maskwright.data.cleaning.store import CleanCorpus
from maskwright.data.tokenizers.extension import Extension, extend_vocabulary, frequent_words, tokens_per_word
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.data.tokenizers.vocabulary import DEFAULT_SAMPLE_BYTES
from maskwright.data.words.lexicon import read_words
from maskwright.huggingface.families import family_named
from maskwright.model.config import EncoderConfig
from maskwright.recipes.recipe import Recipe
from maskwright.training.existing import (
    ExistingModel,
    differences,
    differences_of_layers,
    open_existing,
    settings,
    told,
)
from maskwright.training.model import PretrainingModel, build_model
from maskwright.training.reporting import Reporter
from maskwright.training.run_directory import GENERATOR
from maskwright.training.teacher import check_teacher

# Families whose encoders are the same network, and how the others differ.
_COMPATIBLE = frozenset({"bert", "ernie", "electra"})
_DIFFERENCE = {
    "roberta": "counts positions from its padding id and knows no segments",
    "albert": "has one block for all layers, behind narrow embeddings",
    "distilbert": "has neither segments nor a pooler",
}

_KEPT_SETTINGS = ("hidden_activation", "layer_norm_eps", "max_positions")
"""Settings that a run adopts from its initial model, unless the user sets them. Dropout is not one of them:
it depends on the run's own budget and text."""
_SIMILAR_ACTIVATIONS = frozenset({"gelu", "gelu_tanh"})

KEPT = frozenset(
    {
        "training.learning_rate",
        "training.optimizer.kind",
        "encoder.initializer_range",
        "encoder.initial_attention",
        "objectives.mlm.initial_bias",
    }
)
"""Fields that are not fitted to the budget if weights are loaded: the learning rates of short runs are for random
weights, and the others only affect random weights."""

_POSITIONS = "position_embeddings.weight"


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The initial weights of a run, and where they come from.

    Attributes:
        origin: The model, as the run's record names it.
        weights: By the names of `PretrainingModel`; the rest is newly initialized.
        taken: Loaded parts, in words.
        new: Newly initialized parts.
        left: Parts of the model that the run ignores.
    """

    origin: Mapping[str, str]
    weights: Mapping[str, Tensor]
    taken: tuple[str, ...]
    new: tuple[str, ...]
    left: tuple[str, ...]

    def put_into(self, model: PretrainingModel) -> None:
        """Write the weights into an initialized model."""
        own = model.weights()
        with torch.no_grad():
            for name, tensor in self.weights.items():
                own[name].copy_(tensor)

    def describe(self) -> str:
        """Return one line that lists the loaded, newly initialized and ignored parts."""
        parts = (
            (", ".join(items), word)
            for items, word in ((self.new, "newly initialized"), (self.left, "ignored"))
            if items
        )
        more = "".join(f"; {word}: {items}" for items, word in parts)
        return f"loaded from {self.origin['model']} ({self.origin['family']}): {', '.join(self.taken)}{more}"

    def to_json(self) -> dict[str, Any]:
        """Return the entry in the run's record."""
        return {**self.origin, "taken": list(self.taken), "new": list(self.new), "left": list(self.left)}


def like_the_model(recipe: Recipe, model: ExistingModel, fixed: Collection[str]) -> Recipe:
    """Return the recipe with the settings of a model whose weights it loads; `fixed` fields stay.

    Raises:
        RecipeError: If family or shape do not match; names all fields, both values and a remedy.
    """
    _same_family(recipe, model)
    different = differences(recipe.encoder, model.config)
    if different:
        raise RecipeError(
            f"recipe {recipe.name!r} cannot load the weights of {model.name}: {told(different)}",
            todo=f"Give `{settings(different)}`, or choose another size of the recipe.",
        )
    return _with_settings_of(recipe, model, _KEPT_SETTINGS, fixed)


def like_the_teacher(recipe: Recipe, teacher: ExistingModel, fixed: Collection[str]) -> Recipe:
    """Return a student's recipe with its teacher's activation, if the teacher's layers fit (see `like_the_model`)."""
    mine, theirs = recipe.encoder, teacher.config
    different = differences_of_layers(mine, theirs)
    remedy = "or start from random weights: `--set teacher.initialise=none`."
    if "position_offset" in different:
        system = "distilroberta" if theirs.position_offset else "distilbert"
        raise RecipeError(
            f"recipe {recipe.name!r} cannot load layers of {teacher.name}, a model of the family "
            f"{teacher.family}: its positions start at row {theirs.position_offset}, the recipe's at "
            f"{mine.position_offset}",
            todo=f"Choose a recipe {system}/SIZE, {remedy}",
        )
    if different:
        raise RecipeError(
            f"recipe {recipe.name!r} cannot load layers of its teacher {teacher.name}: {told(different)}",
            todo=f"Give `{settings(different)}`, choose another size of the recipe, {remedy}",
        )
    if mine.num_layers > theirs.num_layers:
        raise RecipeError(
            f"recipe {recipe.name!r} has {mine.num_layers} layers, its teacher {teacher.name} {theirs.num_layers}",
            todo=f"Give `--set encoder.num_layers={max(1, theirs.num_layers // 2)}`, {remedy}",
        )
    return _with_settings_of(recipe, teacher, ("hidden_activation", "max_positions"), fixed)


def describe_changes(before: EncoderConfig, after: EncoderConfig) -> str:
    """Describe the settings loaded from the model; "" if there are none."""
    changed = [(setting, getattr(before, setting), getattr(after, setting)) for setting in _KEPT_SETTINGS]
    return ", ".join(f"{setting} {now} (recipe: {was})" for setting, was, now in changed if was != now)


def start_from(recipe: Recipe, model: ExistingModel, generator: ExistingModel | None) -> Start:
    """Return the weights that a run loads from a model that passed `like_the_model`.

    Args:
        recipe: What is trained.
        model: Source of the encoder and its heads.
        generator: Source of the generator and its head, if the recipe has one of the same shape.
    """
    with torch.device("meta"):
        built = build_model(recipe, model.tokenizer.special_tokens.vocab_size)
    own = built.weights()
    weights, odd = _fitting(model.state, {name: own[name] for name in built.encoder_weights()})
    new = set[str]()
    if built.generator is not None:
        parts = {name: _in_generator(name) for name in built.generator_weights()}
        if generator is not None and (different := differences(built.generator.config, generator.config)):
            new.add(f"generator ({told(different)})")
        elif generator is not None:
            found, misfits = _fitting(
                generator.state, {name: own[inner] for name, inner in parts.items() if inner in own}
            )
            weights |= {parts[name]: tensor for name, tensor in found.items()}
            odd |= {parts[name]: f"the generator's {said}" for name, said in misfits.items()}
    on_generator = own.keys() - built.encoder_weights().keys()
    taken, missing = _parts(weights, on_generator), _parts(own.keys() - weights.keys() - odd.keys(), on_generator)
    if new:
        missing.discard("generator")
    return Start(
        origin=model.to_json(),
        weights=weights,
        taken=tuple(sorted(taken)),
        new=tuple(sorted({*missing, *new, *odd.values()})),
        left=tuple(
            sorted(
                _parts(model.state.keys() - ((weights.keys() | odd.keys()) - on_generator))
                | _rows_left(model.state, weights)
            )
        ),
    )


def start_from_teacher(recipe: Recipe, teacher: ExistingModel) -> Start:
    """Return the weights that a student loads from its teacher: embeddings, some layers, heads of the same kind."""
    with torch.device("meta"):
        built = build_model(recipe, teacher.tokenizer.special_tokens.vocab_size)
    layers = spread_layers(recipe.encoder.num_layers, teacher.config.num_layers)
    state = {name: tensor for name, tensor in teacher.state.items() if "_blocks." not in name}
    for part in ("attention", "ffn"):
        mine, theirs = recipe.encoder.layer_plan(part), teacher.config.layer_plan(part)
        for block in set(mine):
            # A block that several layers share loads the weights of the first of them.
            source = f"encoder.{part}_blocks.{theirs[layers[mine.index(block)]]}."
            state |= {
                f"encoder.{part}_blocks.{block}.{name.removeprefix(source)}": tensor
                for name, tensor in teacher.state.items()
                if name.startswith(source)
            }
    own = built.weights()
    weights, odd = _fitting(state, own)
    numbers = ", ".join(map(str, layers))
    taken = _parts(weights) - {"layers"} | {f"layers {numbers} of {teacher.config.num_layers}"}
    left = _parts(state.keys() - weights.keys() - odd.keys()) | _rows_left(state, weights)
    if len(layers) < teacher.config.num_layers:
        left.add("other layers")
    return Start(
        origin=teacher.to_json(),
        weights=weights,
        taken=tuple(sorted(taken)),
        new=tuple(sorted({*_parts(own.keys() - weights.keys() - odd.keys()), *odd.values()})),
        left=tuple(sorted(left)),
    )


def spread_layers(num_layers: int, of: int) -> tuple[int, ...]:
    """Choose evenly spaced layers of a deeper model, the first and the last included.

    Layer i of l takes layer i (L - 1) / (l - 1), rounded; a single layer takes the first.
    For 6 of 12 layers this gives the list in the original (distillation: scripts/extract_distilbert.py).

    Args:
        num_layers: l, at most `of`.
        of: L.

    Example:
        >>> spread_layers(6, 12)
        (0, 2, 4, 7, 9, 11)
    """
    gaps = max(1, num_layers - 1)
    return tuple((2 * layer * (of - 1) + gaps) // (2 * gaps) for layer in range(num_layers))


def _same_family(recipe: Recipe, model: ExistingModel) -> None:
    families = {recipe.family, model.family}
    if len(families) == 1 or families <= _COMPATIBLE:
        return
    odd = recipe.family if recipe.family in _DIFFERENCE else model.family
    shrink = " To shrink a model, let a recipe distilbert/SIZE learn from it: `--teacher`."
    raise RecipeError(
        f"recipe {recipe.name!r} makes a model of the family {recipe.family} and cannot load {model.name}, which "
        f"is of the family {model.family}: {odd} {_DIFFERENCE[odd]}",
        allowed="the same family, or two of " + ", ".join(sorted(_COMPATIBLE)),
        todo=f"Choose a recipe of the family {model.family}." + (shrink if recipe.family == "distilbert" else ""),
    )


def _with_settings_of(recipe: Recipe, model: ExistingModel, fields: Iterable[str], fixed: Collection[str]) -> Recipe:
    theirs = {setting: getattr(model.config, setting) for setting in fields if f"encoder.{setting}" not in fixed}
    changes = {setting: value for setting, value in theirs.items() if not _stays(recipe, setting, value)}
    positions = changes.get("max_positions", recipe.encoder.max_positions)
    if positions > model.config.max_positions:
        raise RecipeError(
            f"encoder.max_positions is {positions}, but {model.name} has {model.config.max_positions} positions",
            todo=f"Give `--set encoder.max_positions={model.config.max_positions}` or leave it out.",
        )
    if recipe.training.max_length > positions:
        raise RecipeError(
            f"training.phases reach length {recipe.training.max_length}, but {model.name} reads {positions} tokens",
            todo=f"Give `--set 'training.phases=[{{share: 1.0, max_length: {positions}}}]'`.",
        )
    return recipe.replace(encoder=recipe.encoder.replace(**changes))


def _stays(recipe: Recipe, setting: str, value: Any) -> bool:
    """Whether the recipe keeps its value: its family allows no other, and they hardly differ (GELU: below 5e-4)."""
    table = family_named(recipe.family).config
    if setting == "hidden_activation":
        return table.head_activation not in (None, value) and {table.head_activation, value} <= _SIMILAR_ACTIVATIONS
    return bool(table.fixed.get(setting, value) != value)


def _fitting(state: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the weights of matching shape (position embeddings are truncated), and descriptions of the mismatches."""
    found, odd = dict[str, Tensor](), dict[str, str]()
    for name, like in wanted.items():
        if name not in state:
            continue
        tensor = state[name][: len(like)] if name.endswith(_POSITIONS) else state[name]
        if tensor.shape == like.shape:
            found[name] = tensor
        else:
            odd[name] = f"{name} ({_times(like)}, the model's {_times(tensor)})"
    return found, odd


def _times(tensor: Tensor) -> str:
    return " x ".join(map(str, tensor.shape))


def _in_generator(name: str) -> str:
    """Return the name that `PretrainingModel` has for a weight of a generator's own directory."""
    return "generator." + name.removeprefix("encoder.") if name.startswith("encoder.") else name


def _rows_left(state: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> set[str]:
    return {
        f"positions from {len(weights[name])} on"
        for name, tensor in state.items()
        if name in weights and len(weights[name]) < len(tensor)
    }


def _parts(names: Iterable[str], on_generator: Collection[str] = ()) -> set[str]:
    return {
        f"generator's {_part(name)}" if name in on_generator and name.startswith("heads.") else _part(name)
        for name in names
    }


def _part(name: str) -> str:
    tower, _, rest = name.partition(".")
    if tower == "heads":
        return f"head {rest.partition('.')[0]!r}"
    if tower == "generator":
        return "generator"
    if "_blocks." in rest:
        return "layers"
    return {"pooler": "pooler", "segment_embeddings": "segments"}.get(rest.partition(".")[0], "embeddings")


_WORDS_SHOWN = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Origins:
    """The existing models that a run loads weights from or learns from.

    Attributes:
        init: The model whose weights are loaded.
        generator: Its generator, if it has one.
        teacher: The model to learn from.
        gives_layers: Whether the student loads layers of the teacher.
        words_to_find: How many words of the corpus to add to the vocabulary.
        given_words: The vocabulary with the words of a list added; None without one.
    """

    init: ExistingModel | None = None
    generator: ExistingModel | None = None
    teacher: ExistingModel | None = None
    gives_layers: bool = False
    words_to_find: int = 0
    given_words: Extension | None = None

    @property
    def tokenizer(self) -> Tokenizer | None:
        """Their tokenizer."""
        model = self.init or self.teacher
        return None if model is None else model.tokenizer

    @property
    def adds_words(self) -> bool:
        """Whether to extend the vocabulary."""
        return bool(self.words_to_find) or self.given_words is not None

    @property
    def tokenizer_option(self) -> str:
        """The option that the tokenizer comes from, for messages."""
        if self.init is not None:
            return "--init"
        return "--tokenizer" if self.teacher is None else "the teacher"

    @property
    def kept(self) -> frozenset[str]:
        """Fields that are not fitted to the budget."""
        if self.init is not None:
            return KEPT
        return KEPT - {"training.learning_rate"} if self.gives_layers else frozenset()

    def fit(self, recipe: Recipe, fixed: Collection[str]) -> Recipe:
        """Return the recipe with the settings that the models require; `fixed` fields stay.

        Raises:
            RecipeError: If a model's weights do not match, or the teacher cannot teach the recipe's objectives.
        """
        if self.teacher is not None:
            check_teacher(recipe, self.teacher)
            if self.gives_layers:
                recipe = like_the_teacher(recipe, self.teacher, fixed)
        return recipe if self.init is None else like_the_model(recipe, self.init, fixed)

    def extended(self, cleaned: CleanCorpus, seed: int, reporter: Reporter) -> "Origins":
        """Add words to the vocabulary of the initial model, as `open_origins` was asked to.

        Raises:
            DataError: If the corpus has no word to add.
        """
        assert self.init is not None
        old = self.init.tokenizer
        sample = list(cleaned.sample(DEFAULT_SAMPLE_BYTES, seed))
        extension = self.given_words or extend_vocabulary(old, frequent_words(old, sample), self.words_to_find)
        before, after = (tokens_per_word(each, sample, like=old) for each in (old, extension.tokenizer))
        shown = ", ".join(extension.words[:_WORDS_SHOWN]) + (", ..." if len(extension.words) > _WORDS_SHOWN else "")
        few = len(extension.pieces) < self.words_to_find
        reporter.say(
            "vocabulary",
            f"{len(extension.pieces):,} entries added to {old.special_tokens.vocab_size:,}"
            f"{f' (the corpus has no more of the {self.words_to_find:,} asked for)' if few else ''}: {shown}; "
            f"tokens per word: {before:.3f} before, {after:.3f} now",
        )
        generator = None if self.generator is None else self.generator.extended(extension)
        return replace(self, init=self.init.extended(extension), generator=generator)

    def start(self, recipe: Recipe) -> Start | None:
        """Return the initial weights; None if all are random."""
        if self.init is not None:
            return start_from(recipe, self.init, self.generator)
        if self.teacher is not None and self.gives_layers:
            return start_from_teacher(recipe, self.teacher)
        return None


def open_origins(
    recipe: Recipe, init: str | None, tokenizer: Tokenizer | None, new_words: int | str | None = None
) -> Origins:
    """Open the models that a run loads weights from or learns from.

    Args:
        recipe: With the user's settings.
        init: The model whose weights to load, if any.
        tokenizer: What `--tokenizer` gave, if anything; it must be the models' own.
        new_words: How many words of the corpus to add to the vocabulary of `init`, or a file of words; None for none.

    Raises:
        RecipeError: If the recipe wants a teacher and none is named, or two things are wanted that exclude each other.
        ConversionError: If a model cannot be read.
        DataError: If the list of words cannot be read, or holds nothing to add.
    """
    if new_words is not None and recipe.teacher is not None:
        raise RecipeError(
            "--extend-vocabulary would give the student words that its teacher has no scores for",
            todo="Extend the teacher's vocabulary and train it first; then let the student learn from it.",
        )
    gives_layers = recipe.teacher is not None and recipe.teacher.initialise == "layers"
    if init is not None and gives_layers:
        raise RecipeError(
            "--init and the recipe's teacher both say which weights to load",
            todo="Leave --init out, or let the teacher only teach: `--set teacher.initialise=none`.",
        )
    teacher = None if recipe.teacher is None else open_existing(_teacher_named(recipe))
    model = None if init is None else open_existing(init)
    generator = None
    if model is not None and recipe.generator is not None and (model.folder / GENERATOR / "config.json").exists():
        generator = open_existing(str(model.folder / GENERATOR))
    _one_tokenizer({"--init": model, "the teacher": teacher, "the generator": generator}, tokenizer)
    given_words = None
    if isinstance(new_words, str) and model is not None:
        given_words = extend_vocabulary(model.tokenizer, read_words(Path(new_words).expanduser()))
    return Origins(
        init=model,
        generator=generator,
        teacher=teacher,
        gives_layers=gives_layers,
        words_to_find=new_words if isinstance(new_words, int) else 0,
        given_words=given_words,
    )


def same_teacher(recipe: Recipe, recorded: Mapping[str, str], folder: Path) -> ExistingModel:
    """Open the teacher of a run that resumes.

    Raises:
        RecipeError: If the model has changed since the run began.
    """
    teacher = open_existing(_teacher_named(recipe))
    if teacher.fingerprint != recorded["fingerprint"]:
        raise RecipeError(
            f"the teacher {teacher.name} has changed since the run in {folder} began",
            todo="Restore the old one to resume it, or choose another --out.",
        )
    return teacher


def _teacher_named(recipe: Recipe) -> str:
    assert recipe.teacher is not None
    if not recipe.teacher.model:
        raise RecipeError(
            f"recipe {recipe.name!r} learns from a teacher, and none is given",
            allowed="a run's folder, a Hugging Face folder or a hub name",
            todo="Give it: `--teacher DIR_OR_HUB_NAME`",
        )
    return recipe.teacher.model


def _one_tokenizer(models: Mapping[str, ExistingModel | None], given: Tokenizer | None) -> None:
    brought = [] if given is None else [("--tokenizer", given)]
    brought += [(source, model.tokenizer) for source, model in models.items() if model is not None]
    for source, other in brought[1:]:
        first, tokenizer = brought[0]
        if not _equal(tokenizer, other):
            raise RecipeError(
                f"{first} and {source} bring different tokenizers ({tokenizer.special_tokens.vocab_size:,} and "
                f"{other.special_tokens.vocab_size:,} entries)",
                todo="Leave --tokenizer out: weights need the tokenizer they were trained with."
                if given is not None
                else "Choose models of one vocabulary.",
            )


def _equal(first: Tokenizer, second: Tokenizer) -> bool:
    return first.fingerprint == second.fingerprint or (
        first.kind == second.kind
        and first.special_tokens == second.special_tokens
        and first.backend.get_vocab() == second.backend.get_vocab()
    )
