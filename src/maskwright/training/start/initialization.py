"""Initialization from existing models: which weights a run loads, what must match, what is newly initialized.

`--init` loads a model of the same shape, whatever its objectives were. A student loads some of its teacher's layers
(`Recipe.teacher`).
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from maskwright.checkpoints.card_facts import CardFacts, read_card_facts
from maskwright.checkpoints.checkpoint import Checkpoint
from maskwright.checkpoints.families import family_named
from maskwright.checkpoints.sentence_folder import MODULES, SentenceModules
from maskwright.core.errors import RecipeError
from maskwright.data.cleaning.store import CleanCorpus
from maskwright.data.tokenizers.extension import Extension, extend_vocabulary, frequent_words, tokens_per_word
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.data.tokenizers.training import DEFAULT_SAMPLE_BYTES
from maskwright.data.words.lexicon import read_lexicon
from maskwright.fitting.rules import Choice, Rule, apply_rules
from maskwright.fitting.schedule import LAMB_SEQUENCES
from maskwright.model.config import EncoderConfig
from maskwright.pretext.objectives import SentenceVectors, TeacherObjective
from maskwright.recipes.optimization import Training
from maskwright.recipes.recipe import Recipe
from maskwright.reporting.reporter import Reporter
from maskwright.training.start.existing import (
    describe_differences,
    differences,
    differences_of_layers,
    is_projected,
    open_existing,
    parts_of,
    settings,
)
from maskwright.training.steps.model import build_model
from maskwright.training.steps.weights import all_weights, encoder_weights, generator_weights

_COMPATIBLE = frozenset({"bert", "ernie", "electra"})
"""Families whose encoders are the same network."""
_DIFFERENCE = {  # Of the families where it is worth a sentence.
    "roberta": "counts positions from its padding id and has no segments",
    "albert": "has one block for all layers and narrow embeddings",
    "distilbert": "has neither segments nor a pooler",
    "modernbert": "has pre-norm layers, rotary positions and gated feed-forward layers",
    "maskwright": "is for encoders that no other family computes",
}

_INHERITED = (
    *("hidden_activation", "layer_norm_eps", "max_positions"),
    *("rope_theta", "local_rope_theta", "attention_window", "global_attention_every"),
)
"""Settings that a run inherits from its initial model, unless the user sets them. Dropout is not inherited: it depends
on the run's own budget and text."""
_SIMILAR_ACTIVATIONS = frozenset({"gelu", "gelu_tanh"})

NOT_FITTED = frozenset(
    {
        "training.learning_rate",
        "training.optimizer.kind",
        "encoder.initializer_range",
        "encoder.initial_attention",
        "encoder.initial_embeddings",
        "objectives.mlm.initial_bias",
    }
)
"""Fields that are not fitted to the budget if weights are loaded: the learning rates of short runs are for random
weights, and the others only affect random weights."""

CONTINUED_RATE = 3e-4
"""Peak learning rate with initial weights where a higher one is published, for random weights and batches of
`LAMB_SEQUENCES` and more. ModernBERT continues at this rate itself, at another length; measured with modernbert/tiny,
which is worse at the published 3e-3 and about as good at 1e-3 (LOG.md)."""

_LIMIT: Rule[Training] = Rule(
    "training.learning_rate",
    CONTINUED_RATE,
    lambda published: f"the published one is for random weights and steps of {published.batch_sequences:,} sequences",
    lambda published: (
        published.learning_rate > CONTINUED_RATE
        and published.batch_sequences >= LAMB_SEQUENCES
        and not published.optimizer.needs_large_batches
    ),
)

_POSITIONS = "position_embeddings.weight"
WORD_EMBEDDINGS = "encoder.word_embeddings.weight"
"""The encoder's table by the names of `PretrainingModel`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InitialWeights:
    """The initial weights of a run by the names of `PretrainingModel`, and the model that they come from.

    `loaded`, `new` (newly initialized) and `ignored` describe parts in words; `modules` are those of an initial model
    that is a folder of sentence-transformers, `card` what its model card states. If there are `projected_layers` of a
    teacher, `weights` lacks what the run computes of them (`project_weights`), which needs its text.
    """

    origin: Mapping[str, str]
    weights: Mapping[str, Tensor]
    loaded: tuple[str, ...]
    new: tuple[str, ...]
    ignored: tuple[str, ...]
    modules: SentenceModules | None = None
    card: CardFacts = field(default_factory=CardFacts)
    projected_layers: tuple[int, ...] = ()

    def describe(self) -> str:
        """Return one line that lists the loaded, newly initialized and ignored parts."""
        line = f"loaded from {self.origin['model']} ({self.origin['family']}): {', '.join(self.loaded)}"
        line += f"; newly initialized: {', '.join(self.new)}" if self.new else ""
        return line + (f"; ignored: {', '.join(self.ignored)}" if self.ignored else "")

    def to_json(self) -> dict[str, Any]:
        return {**self.origin, "loaded": list(self.loaded), "new": list(self.new), "ignored": list(self.ignored)}


def inherit_from_init(recipe: Recipe, model: Checkpoint, fixed: Collection[str]) -> Recipe:
    """Return the recipe with the settings of a model whose weights it loads; `fixed` fields stay.

    Raises RecipeError if family or shape do not match; names all fields, both values and a remedy.
    """
    families = {recipe.family, model.family}
    if len(families) > 1 and not families <= _COMPATIBLE:
        why = next(
            (f": {name} {_DIFFERENCE[name]}" for name in (recipe.family, model.family) if name in _DIFFERENCE), ""
        )
        shrink = " To shrink a model, distill it: recipe distilbert/SIZE with `--teacher`."
        raise RecipeError(
            f"recipe {recipe.name!r} makes a model of the family {recipe.family} and cannot load {model.name}, which "
            f"is of the family {model.family}{why}",
            allowed="the same family, or two of " + ", ".join(sorted(_COMPATIBLE)),
            hint=f"Choose a recipe of the family {model.family}." + (shrink if recipe.family == "distilbert" else ""),
        )
    if different := differences(recipe.encoder, model.config):
        raise RecipeError(
            f"recipe {recipe.name!r} cannot load the weights of {model.name}: {describe_differences(different)}",
            hint=f"Give `{settings(different)}`, or choose another size of the recipe.",
        )
    return _inherit(recipe, model, _INHERITED, fixed)


def inherit_from_teacher(recipe: Recipe, teacher: Checkpoint, fixed: Collection[str]) -> Recipe:
    """Return a student's recipe with its teacher's activation; raise RecipeError as `inherit_from_init` does."""
    config, source_config = recipe.encoder, teacher.config
    num_heads, rest = divmod(config.hidden_size, source_config.head_size)
    if config.hidden_size <= source_config.hidden_size and not rest and "encoder.num_heads" not in fixed:
        config = config.replace(num_heads=num_heads)  # Heads of the teacher's size, so that some of them can be loaded.
        recipe = recipe.replace(encoder=config)
    projected = is_projected(config, source_config)
    different = {} if projected else differences_of_layers(config, source_config)
    remedy = "or load its embeddings only, or nothing: `--set teacher.initialize=embeddings`, "
    remedy += "`--set teacher.initialize=none`."
    if config.hidden_size < source_config.hidden_size and not rest and config.num_heads != num_heads:
        remedy = f"heads of its size (encoder.num_heads={num_heads}), {remedy}"
    elif config.hidden_size < source_config.hidden_size and rest:
        remedy = f"a hidden size that is a multiple of {source_config.head_size}, the size of its heads, {remedy}"
    if "position_offset" in different:
        offset, segments = source_config.position_offset, source_config.type_vocab_size
        as_set = f"--set family={teacher.family} --set encoder.position_offset={offset}"
        as_set += f" --set encoder.type_vocab_size={segments}"
        raise RecipeError(
            f"recipe {recipe.name!r} cannot load layers of {teacher.name}, a model of the family "
            f"{teacher.family}: its positions start at row {offset}, the recipe's at "
            f"{config.position_offset}",
            hint=f"Choose another recipe with a teacher (`maskwright recipes`), give `{as_set}`, {remedy}",
        )
    if different:
        raise RecipeError(
            f"recipe {recipe.name!r} cannot load layers of its teacher {teacher.name}: "
            f"{describe_differences(different)}",
            hint=f"Give `{settings(different)}`, choose another size of the recipe, {remedy}",
        )
    if config.num_layers > source_config.num_layers:
        raise RecipeError(
            f"recipe {recipe.name!r} has {config.num_layers} layers, its teacher {teacher.name} "
            f"{source_config.num_layers}",
            hint=f"Give `--set encoder.num_layers={max(1, source_config.num_layers // 2)}`, {remedy}",
        )
    return _inherit(recipe, teacher, ("hidden_activation", "max_positions"), fixed)


def inherit_vectors(recipe: Recipe, teacher: Checkpoint) -> Recipe:
    """Return a student's recipe with its teacher's pooling and size of sentence vectors, if it learns these.

    Raises ConversionError if the teacher's modules are needed and not supported, RecipeError if another size is set.
    """
    objectives = list(recipe.objectives)
    for number, objective in enumerate(objectives):
        if isinstance(objective, SentenceVectors):
            if objective.pooling is None:
                teacher.modules.check(teacher.name)
            pooling = objective.pooling or teacher.modules.pooling
            dense = teacher.modules.dense_after(pooling)
            size = teacher.config.hidden_size if dense is None else dense.out_features
            if objective.vector_size not in (None, size):
                raise RecipeError(
                    f"objectives.{objective.kind}.vector_size is {objective.vector_size}, but the vectors of the "
                    f"teacher {teacher.name} have {size} numbers",
                    hint="Leave it out.",
                )
            objectives[number] = objective.replace(pooling=pooling, vector_size=size)
    return recipe.replace(objectives=tuple(objectives))


def check_teacher(recipe: Recipe, model: Checkpoint) -> None:
    """Check that a recipe can learn from a teacher. They share the tokenizer, so the vocabulary too.

    Raises RecipeError if it cannot.
    """
    config, source_config = recipe.encoder, model.config
    for objective in recipe.objectives:
        if not isinstance(objective, TeacherObjective):
            continue
        objective.check_teacher(config.hidden_size, source_config.hidden_size, source_config.num_layers)
        if objective.needs_teacher_scores and not any(name.startswith("heads.mlm.") for name in model.state):
            raise RecipeError(
                f"objective {objective.kind!r} needs the scores of the teacher's masked-token head, and {model.name} "
                "has none",
                hint=f"Choose a teacher saved with that head, or leave {objective.kind!r} out of the objectives.",
            )
        if objective.needs_teacher_width and config.hidden_size != source_config.hidden_size:
            different = differences_of_layers(config, source_config)
            # The heads must divide the width, and the feed-forward part keeps its proportion to it.
            wanted: tuple[str, ...] = ("hidden_size", "num_heads", "intermediate_size")
            if recipe.teacher is not None and recipe.teacher.initialize == "layers":
                wanted = tuple(field for field in different if field != "position_offset")
            fitting = settings({field: different[field] for field in wanted if field in different})
            raise RecipeError(
                f"objective {objective.kind!r} compares hidden states, but those of the teacher {model.name} are "
                f"{source_config.hidden_size} wide and encoder.hidden_size is {config.hidden_size}",
                hint=f"Give `{fitting}` or another size of the recipe, or leave {objective.kind!r} out of the "
                "objectives.",
            )
    _check_length(recipe, f"the teacher {model.name}", source_config.max_positions)


def describe_changes(before: EncoderConfig, after: EncoderConfig) -> str:
    """Describe the inherited settings; "" if there are none."""
    names = (*_INHERITED, "num_heads")
    changed = [(name, getattr(before, name), getattr(after, name)) for name in names]
    return ", ".join(f"{setting} {now} (recipe: {was})" for setting, was, now in changed if was != now)


def start_from(recipe: Recipe, model: Checkpoint, generator: Checkpoint | None) -> InitialWeights:
    """Return the weights that a run loads from a model that passed `inherit_from_init`."""
    with torch.device("meta"):
        built = build_model(recipe, model.tokenizer.special_tokens.vocab_size)
    target = all_weights(built)
    on_generator = target.keys() - encoder_weights(built).keys()
    state = {name: tensor for name, tensor in model.state.items() if name not in on_generator}
    described = {}
    if built.generator is not None and generator is not None:
        if different := differences(built.generator.config, generator.config):
            described["generator"] = f"generator ({describe_differences(different)})"
        else:
            # By the names in a generator's directory.
            names = {name: name.replace("encoder.", "generator.", 1) for name in generator_weights(built)}
            state |= {names[name]: tensor for name, tensor in generator.state.items() if names.get(name) in target}
    ignored = parts_of(model.state.keys() & on_generator)
    start = _start(model, state, target, described, ignored, on_generator)
    return replace(start, modules=model.modules) if (model.folder / MODULES).is_file() else start


def start_from_teacher(recipe: Recipe, teacher: Checkpoint) -> InitialWeights:
    """Return the weights that a student loads from its teacher: embeddings, some layers, heads of the same kind.

    One with smaller layers gets embeddings, layers and a head for sentence vectors by projection (`project_weights`).
    """
    with torch.device("meta"):
        target = all_weights(build_model(recipe, teacher.tokenizer.special_tokens.vocab_size))
    num_layers = teacher.config.num_layers
    layers = spread_layers(recipe.encoder.num_layers, num_layers)
    if is_projected(recipe.encoder, teacher.config):
        # Of heads, what has the same shape: all of it at equal width, else the output bias.
        heads = {
            name: tensor
            for name, tensor in teacher.state.items()
            if name.startswith("heads.") and name in target and tensor.shape == target[name].shape
        }
        start = _start(teacher, heads, target, {}, {*parts_of(teacher.state), "other layers"})
        parts = {"embeddings", "layers", "head 'sentence_vectors'"} & {*start.new}
        chosen = f"layers {', '.join(map(str, layers))} of {num_layers}, projected to {recipe.encoder.hidden_size} axes"
        partial = {*start.loaded} & {*start.new}
        loaded = {chosen, *parts, *start.loaded, *(f"output bias of {head}" for head in partial)} - {"layers", *partial}
        used = {*loaded, *partial, "embeddings", "layers"} | ({"other layers"} if len(layers) == num_layers else set())
        return replace(
            start,
            loaded=tuple(sorted(loaded)),
            new=tuple(sorted({*start.new} - parts)),
            ignored=tuple(sorted({*start.ignored} - used)),
            projected_layers=layers,
        )
    state = {name: tensor for name, tensor in teacher.state.items() if "_blocks." not in name}
    for part in ("attention", "ffn"):
        plan, source_plan = recipe.encoder.layer_plan(part), teacher.config.layer_plan(part)
        for block in set(plan):
            # A block that several layers share loads the weights of the first of them.
            source = f"encoder.{part}_blocks.{source_plan[layers[plan.index(block)]]}."
            state |= {
                f"encoder.{part}_blocks.{block}.{name.removeprefix(source)}": tensor
                for name, tensor in teacher.state.items()
                if name.startswith(source)
            }
    described = {"layers": f"layers {', '.join(map(str, layers))} of {num_layers}"}
    return _start(teacher, state, target, described, {"other layers"} if len(layers) < num_layers else set())


def start_from_embeddings(recipe: Recipe, teacher: Checkpoint) -> InitialWeights:
    """Return the embeddings that a student loads from its teacher.

    Narrower ones are the teacher's on the principal axes of its word embeddings, so that most of what tells words apart
    is kept. A student without segments has the teacher's segment 0 in its positions. Raises RecipeError if the
    student's embeddings are wider.
    """
    with torch.device("meta"):
        target = all_weights(build_model(recipe, teacher.tokenizer.special_tokens.vocab_size))
    names = [f"encoder.{part}_embeddings.weight" for part in ("word", "position", "segment")]
    words, positions, segments = (teacher.state.get(name) for name in names)
    assert words is not None
    width, teacher_width = recipe.encoder.embedding_width, words.shape[1]
    if width > teacher_width:
        raise RecipeError(
            f"the student's embeddings are {width} wide, and those of its teacher {teacher.name} only {teacher_width}",
            hint="Choose a narrower student, or start from random weights: `--set teacher.initialize=none`.",
        )
    if positions is not None and segments is not None and not recipe.encoder.type_vocab_size:
        positions, segments = positions + segments[0], None
    if positions is not None:
        skipped = positions.new_zeros(recipe.encoder.position_offset, teacher_width)
        positions = torch.cat([skipped, positions[teacher.config.position_offset :]])
    axes = torch.eye(width) if width == teacher_width else torch.linalg.eigh(words.T @ words)[1][:, -width:]
    tables = zip(names, (words, positions, segments), strict=True)
    state = {name: table @ axes for name, table in tables if table is not None and name in target}
    start = _start(teacher, state, target, {}, {"layers"})
    # Of the embeddings, the LayerNorm is always new, and the positions if the teacher has no table.
    positions_new = ["position embeddings"] * (positions is None and names[1] in target)
    return replace(start, new=tuple(sorted({*start.new, *positions_new} - {"embeddings"})))


def _start(
    model: Checkpoint,
    state: Mapping[str, Tensor],
    target: Mapping[str, Tensor],
    described: Mapping[str, str],
    ignored: set[str],
    on_generator: Collection[str] = (),
) -> InitialWeights:
    """Load what fits of a model's weights `state` into the run's, `target`; position embeddings are truncated.

    `described` has descriptions of parts, in place of their names, and `ignored` further ignored parts; `on_generator`
    are the run's weights that belong to its generator.
    """
    weights, mismatched = dict[str, Tensor](), dict[str, str]()
    for name, like in target.items():
        if name not in state:
            continue
        tensor = state[name][: len(like)] if name.endswith(_POSITIONS) else state[name]
        if tensor.shape == like.shape:
            weights[name] = tensor
            if len(tensor) < len(state[name]):
                ignored = ignored | {f"positions from {len(tensor)} on"}
        else:
            shape, source_shape = (" x ".join(map(str, each.shape)) for each in (like, tensor))
            mismatched[name] = f"{name} ({shape}, the model's {source_shape})"
    used = weights.keys() | mismatched.keys()
    loaded, new = (
        {described.get(part, part) for part in parts_of(names, on_generator)}
        for names in (weights, target.keys() - used)
    )
    return InitialWeights(
        origin=model.to_json(),
        card=read_card_facts(model.folder, model.name),
        weights=weights,
        loaded=tuple(sorted(loaded)),
        new=tuple(sorted({*new, *mismatched.values()})),
        ignored=tuple(sorted(ignored | parts_of(state.keys() - used))),
    )


def spread_layers(num_layers: int, of: int) -> tuple[int, ...]:
    """Choose evenly spaced layers of a deeper model, the first and the last included; a single layer is the first.

    Layer i of l is layer i (L - 1) / (l - 1), rounded. For 6 of 12 layers this gives the list in the original
    (distillation: scripts/extract_distilbert.py).

    Example:
        >>> spread_layers(6, 12)
        (0, 2, 4, 7, 9, 11)
    """
    gaps = max(1, num_layers - 1)
    return tuple((2 * layer * (of - 1) + gaps) // (2 * gaps) for layer in range(num_layers))


def _inherit(recipe: Recipe, model: Checkpoint, names: Iterable[str], fixed: Collection[str]) -> Recipe:
    table, changes = family_named(recipe.family).config, dict[str, Any]()
    for name in names:
        # The recipe keeps what its family fixes, and an activation of its head that hardly differs (GELU: below 5e-4).
        value = getattr(model.config, name)
        kept = table.fixed.get(name, value) != value
        if name == "hidden_activation":
            kept = table.head_activation not in (None, value) and {table.head_activation, value} <= _SIMILAR_ACTIVATIONS
        if not kept and f"encoder.{name}" not in fixed:
            changes[name] = value
    positions = changes.get("max_positions", recipe.encoder.max_positions)
    if positions > model.config.max_positions:
        raise RecipeError(
            f"encoder.max_positions is {positions}, but {model.name} has {model.config.max_positions} positions",
            hint=f"Give `--set encoder.max_positions={model.config.max_positions}` or leave it out.",
        )
    _check_length(recipe, model.name, positions)
    return recipe.replace(encoder=recipe.encoder.replace(**changes))


def _check_length(recipe: Recipe, model: str, positions: int) -> None:
    if recipe.training.max_length > positions:
        raise RecipeError(
            f"training.phases reach length {recipe.training.max_length}, but {model} has {positions} positions",
            hint=f"Give `--set 'training.phases=[{{share: 1.0, max_length: {positions}}}]'`.",
        )


_WORDS_SHOWN = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceModels:
    """The existing models that a run loads weights from (`init`, perhaps with a generator) or learns from.

    `student_weights` is what the student loads of the teacher's weights (`Teacher.initialize`). `new_words` is the
    number of words of the corpus to add to the vocabulary, or the vocabulary with those of a list.
    """

    init: Checkpoint | None = None
    generator: Checkpoint | None = None
    teacher: Checkpoint | None = None
    student_weights: Literal["layers", "embeddings", "none"] = "none"
    new_words: int | Extension | None = None

    @property
    def tokenizer(self) -> Tokenizer | None:
        """Their tokenizer, if there is a model."""
        model = self.init or self.teacher
        return None if model is None else model.tokenizer

    @property
    def not_fitted(self) -> frozenset[str]:
        if self.init is not None:
            return NOT_FITTED
        if self.student_weights == "embeddings":
            assert self.teacher is not None
            # The initial attention is computed from random positions, which a teacher with a table replaces.
            replaced = {"encoder.initial_attention"} if self.teacher.config.positions == "absolute" else set()
            return frozenset({"encoder.initial_embeddings", *replaced})
        return NOT_FITTED if self.student_weights == "layers" else frozenset()

    def fit(self, recipe: Recipe, fixed: Collection[str]) -> Recipe:
        """Return the recipe with the settings that the models require; `fixed` fields stay.

        Raises RecipeError if a model's weights do not match, or the teacher cannot teach the recipe's objectives.
        """
        if self.teacher is not None:
            recipe = inherit_vectors(recipe, self.teacher)
            check_teacher(recipe, self.teacher)
            if self.student_weights == "layers":
                recipe = inherit_from_teacher(recipe, self.teacher, fixed)
        return recipe if self.init is None else inherit_from_init(recipe, self.init, fixed)

    def limit_rate(self, recipe: Recipe, fixed: Collection[str]) -> tuple[Recipe, tuple[Choice, ...]]:
        """Lower the learning rate for initial weights if it is published for random ones and large batches."""
        return apply_rules(recipe, [] if self.init is None else [_LIMIT], recipe.training, fixed)

    def extended(self, cleaned: CleanCorpus, seed: int, reporter: Reporter) -> "SourceModels":
        """Add words to the vocabulary of the initial model. Raises DataError if the corpus has no word to add."""
        assert self.init is not None
        old = self.init.tokenizer
        sample = list(cleaned.sample(DEFAULT_SAMPLE_BYTES, seed))
        extension, few = self.new_words, ""
        if isinstance(extension, int):
            wanted, extension = extension, extend_vocabulary(old, frequent_words(old, sample), extension)
            few = f" (of {wanted:,}; the corpus has no more)" if len(extension.pieces) < wanted else ""
        assert extension is not None
        before, after = (tokens_per_word(each, sample, like=old) for each in (old, extension.tokenizer))
        shown = ", ".join(extension.words[:_WORDS_SHOWN]) + (", ..." if len(extension.words) > _WORDS_SHOWN else "")
        reporter.message(
            "vocabulary",
            f"{len(extension.pieces):,} entries added to {old.special_tokens.vocab_size:,}{few}: {shown}; "
            f"tokens per word: {before:.3f} before, {after:.3f} now",
        )
        generator = None if self.generator is None else self.generator.extended(extension)
        return replace(self, init=self.init.extended(extension), generator=generator)

    def start(self, recipe: Recipe) -> InitialWeights | None:
        """Return the initial weights; None if all are random."""
        if self.init is not None:
            return start_from(recipe, self.init, self.generator)
        if self.teacher is None or self.student_weights == "none":
            return None
        start = start_from_teacher if self.student_weights == "layers" else start_from_embeddings
        return start(recipe, self.teacher)


def open_source_models(
    recipe: Recipe, init: str | None, tokenizer: Tokenizer | None, new_words: int | str | None = None
) -> SourceModels:
    """Open the models that a run loads weights from or learns from.

    `tokenizer` is that of `--tokenizer`, which must be the models' own. `new_words` is the number of words of the
    corpus to add to the vocabulary of `init`, or a file of words.

    Raises:
        RecipeError: If the recipe needs a teacher and none is named, or options exclude each other.
        ConversionError: If a model cannot be read.
        DataError: If the list of words cannot be read, or has nothing to add.
    """
    if new_words is not None and recipe.teacher is not None:
        raise RecipeError(
            "--extend-vocabulary would give the student words that its teacher has no scores for",
            hint="Extend the teacher's vocabulary and train it first; then let the student learn from it.",
        )
    student_weights = "none" if recipe.teacher is None else recipe.teacher.initialize
    if init is not None and student_weights != "none":
        raise RecipeError(
            "--init and the recipe's teacher both say which weights to load",
            hint="Leave --init out, or load no weights of the teacher: `--set teacher.initialize=none`.",
        )
    teacher = None if recipe.teacher is None else open_teacher(recipe)
    model = None if init is None else open_existing(init)
    generator = None
    if model is not None and recipe.generator is not None and model.generator is not None:
        generator = open_existing(str(model.generator))
    models = {"--init": model, "the teacher": teacher, "the generator": generator}
    tokenizers = {source: each.tokenizer for source, each in models.items() if each is not None}
    _check_tokenizers(tokenizers if tokenizer is None else {"--tokenizer": tokenizer, **tokenizers})
    added: int | Extension | None = None if isinstance(new_words, str) else new_words
    if isinstance(new_words, str) and model is not None:
        added = extend_vocabulary(model.tokenizer, read_lexicon(Path(new_words).expanduser()))
    return SourceModels(
        init=model, generator=generator, teacher=teacher, student_weights=student_weights, new_words=added
    )


def open_teacher(recipe: Recipe) -> Checkpoint:
    """Open the teacher of a recipe; raises RecipeError if none is named."""
    require_teacher(recipe)
    assert recipe.teacher is not None
    return open_existing(recipe.teacher.model)


def require_teacher(recipe: Recipe, option: str = "`--teacher DIR_OR_HUB_NAME`") -> None:
    """Raise RecipeError if the recipe needs a teacher and names none; `option` is how to name it."""
    if recipe.teacher is not None and not recipe.teacher.model:
        raise RecipeError(
            f"recipe {recipe.name!r} learns from a teacher, and none is given",
            allowed="a run's folder, a Hugging Face folder or a hub name",
            hint=f"Give it: {option}",
        )


def _check_tokenizers(tokenizers: Mapping[str, Tokenizer]) -> None:
    """Raise RecipeError if the tokenizers, by their sources, differ."""
    for source, other in list(tokenizers.items())[1:]:
        first, one = next(iter(tokenizers.items()))
        if one.fingerprint != other.fingerprint and (
            one.kind != other.kind
            or one.special_tokens != other.special_tokens
            or one.backend.get_vocab() != other.backend.get_vocab()
        ):
            raise RecipeError(
                f"{first} and {source} have different tokenizers ({one.special_tokens.vocab_size:,} and "
                f"{other.special_tokens.vocab_size:,} entries)",
                hint="Leave --tokenizer out: weights need the tokenizer they were trained with."
                if first == "--tokenizer"
                else "Choose models with one vocabulary.",
            )
