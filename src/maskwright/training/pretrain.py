"""`maskwright.pretrain`: from a corpus and a recipe to a trained, loadable model, in the order in which it happens."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from maskwright.core.errors import RecipeError
from maskwright.core.files import read_json, write_json, write_text
from maskwright.core.spec import override, parse_overrides, validate
from maskwright.data.words.annotator import words_fingerprint
from maskwright.data.words.level_facts import with_levels
from maskwright.recipes.catalog import resolve
from maskwright.recipes.default_cleaning import default_cleaning
from maskwright.recipes.recipe import Recipe
from maskwright.training.budget import Budget
from maskwright.training.compiling import Compiling, compiles_on
from maskwright.training.device import Machine, Precision, computing_on, prepare_machine_again, tokens_at_once
from maskwright.training.heldout import Baseline, Measured
from maskwright.training.interrupt import stop_on_signals
from maskwright.training.preparation import Prepared, Request, prepare, prepare_again
from maskwright.training.reporting import OnConsole, Reporter
from maskwright.training.run_folder import RunFolder, environment
from maskwright.training.session import Session
from maskwright.training.teacher import build_teacher


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run as it stands.

    Attributes:
        folder: Where it lies; also a Hugging Face model folder.
        finished: Whether the budget is spent (else it was interrupted and resumes with the same call).
        steps: Optimizer steps done.
        tokens: Real tokens read.
        epochs: Passes over the training text.
        seconds: Seconds inside the training loop.
        held_out: Loss and accuracy of each objective on held-out text, by kind.
        baseline: What guessing by frequency achieves there; None if nothing could be held out.
        fitted: What was fitted to the budget: field, published and chosen value, reason.
        stopped_by: The signal that interrupted it, or None.
    """

    folder: Path
    finished: bool
    steps: int
    tokens: int
    epochs: float
    seconds: float
    held_out: dict[str, Measured]
    baseline: Baseline | None
    fitted: list[dict[str, Any]]
    stopped_by: str | None

    def to_json(self) -> dict[str, Any]:
        """Return plain data, as `run.json` keeps it."""
        return {**dataclasses.asdict(self), "folder": str(self.folder)}


def pretrain(
    corpus: str | Path | Sequence[str | Path],
    *,
    out: str | Path,
    recipe: str | Recipe = "bert/mini",
    steps: int | None = None,
    tokens: float | None = None,
    minutes: float | None = None,
    hours: float | None = None,
    flops: float | None = None,
    seed: int = 0,
    set: Sequence[str] = (),
    as_published: bool = False,
    tokenizer: str | Path | None = None,
    init: str | Path | None = None,
    extend_vocabulary: int | str | Path | None = None,
    teacher: str | Path | None = None,
    clean: Sequence[str] = (),
    device: str = "auto",
    precision: Precision = "auto",
    compile: Compiling = "auto",
    workers: int | None = None,
    cache: str | Path | None = None,
    checkpoint_minutes: float = 1.0,
    reporter: Reporter | None = None,
) -> Run:
    """Train an encoder on a corpus. The same call again resumes an interrupted run, or finds a finished one.

    Args:
        corpus: Files, folders, globs, `docstrings` or Hugging Face dataset names, each optionally `:weight`.
        out: The run's folder; new, empty, or holding this very run.
        recipe: A recipe's name, a JSON file, or a recipe.
        steps, tokens, minutes, hours, flops: The budget; give one. None is needed with `as_published`.
        seed: Keys every random choice.
        set: Overrides of recipe fields, "masking.rate=0.3".
        as_published: Keep the published schedule, batch, length and vocabulary, whatever the budget.
        tokenizer: A tokenizer folder to use instead of training a vocabulary.
        init: A model of the same shape to go on from: a run's folder, a Hugging Face folder or a hub name. Its
            tokenizer comes with it.
        extend_vocabulary: How many words of the corpus to add to that model's vocabulary, or a file of words, one a
            line.
        teacher: The model that a recipe with a teacher learns from; the same as `set=["teacher.model=..."]`.
        clean: Overrides of the cleaning, "deduplicate=none"; where the recipe reads dialogues, of one that leaves lines
            whole (`default_cleaning`).
        device: "auto", "cpu", "cuda" or "cuda:N".
        precision: "fp32", "bf16" for matrix products (weights, sums and losses stay fp32), or "auto": bf16 on a GPU
            that has it.
        compile: "auto" lets kernels of our own compute on a GPU in bf16, and captures passes as graphs, if one batch
            then gives the same loss and gradients; "no" leaves all to PyTorch's operations.
        workers: Processes for preparation; None for one a core.
        cache: Where prepared text is kept; None for the user's cache folder.
        checkpoint_minutes: Time between checkpoints (longer where writing one would take over 3 % of it).
        reporter: Where the run talks; None for standard error.

    Raises:
        MaskwrightError: If anything the user gave cannot be honoured; nothing is lost.
    """
    pairs = parse_overrides(set)
    if teacher is not None:
        pairs.append(("teacher.model", str(teacher)))
    chosen = override(recipe if isinstance(recipe, Recipe) else resolve(str(recipe)), pairs)
    request = Request(
        sources=(str(corpus),) if isinstance(corpus, str | Path) else tuple(str(source) for source in corpus),
        recipe=chosen,
        fixed=frozenset(path for name, value in pairs for path in _leaves(name, value)),
        budget=_budget(
            Budget.of(steps=steps, tokens=tokens, minutes=minutes, hours=hours, flops=flops),
            chosen,
            as_published,
        ),
        seed=seed,
        as_published=as_published,
        tokenizer=None if tokenizer is None else Path(tokenizer).expanduser(),
        init=None if init is None else str(init),
        extend_vocabulary=_words_to_add(extend_vocabulary, init),
        cleaning=override(default_cleaning(chosen), parse_overrides(clean)),
        precision=precision,
        workers=workers,
        cache=None if cache is None else Path(cache).expanduser(),
    )
    folder = RunFolder(Path(out).expanduser())
    with reporter or OnConsole() as talk:
        try:
            record = folder.open(request.to_json())
            if record.get("result", {}).get("finished"):
                talk.say("finished", f"{folder.path} is trained already; nothing is left to do")
                return _run_of(record["result"], folder.path)
            machine, said = prepare_machine_again(record.get("machine", {}), device, request.cache, precision)
            if said:
                talk.say("attention", said)
            compiles = compiles_on(machine.device, compile) and machine.attention == "compiled"
            if machine.device.type == "cuda" and not compiles:
                machine = replace(machine, attention="libraries")
            with computing_on(machine):
                return _sit(request, folder, record, machine, checkpoint_minutes, talk, compiles=compiles)
        finally:
            folder.close()


def _words_to_add(words: int | str | Path | None, init: str | Path | None) -> int | str | None:
    if words is None:
        return None
    if init is None:
        raise RecipeError(
            "--extend-vocabulary adds words to the vocabulary of an existing model, and none is given",
            todo="Say which, `--init DIR_OR_HUB_NAME`; without one, the vocabulary is learnt from the corpus anyway.",
        )
    text = str(words)
    if not text.removeprefix("-").isdecimal():
        return text
    if int(text) < 1:
        raise RecipeError(f"--extend-vocabulary is {words}", allowed="a number of words from 1 on, or a file")
    return int(text)


def _leaves(path: str, value: Any) -> list[str]:
    """List the fields that an override sets: a mapping sets what it names and no more."""
    if isinstance(value, dict) and value:
        return [leaf for name, item in value.items() for leaf in _leaves(f"{path}.{name}", item)]
    return [path]


def _budget(given: Budget | None, recipe: Recipe, as_published: bool) -> Budget:
    if given is not None:
        return given
    if as_published:
        return Budget("steps", recipe.training.steps)
    raise RecipeError(
        "no budget was given",
        todo="Say how much may be spent, e.g. `--minutes 10` (or --hours, --steps, --tokens, --flops); "
        "`--as-published` alone takes the published number of steps.",
    )


def _sit(
    request: Request,
    folder: RunFolder,
    record: dict[str, Any],
    machine: Machine,
    checkpoint_minutes: float,
    talk: Reporter,
    *,
    compiles: bool,
) -> Run:
    talk.say(
        "machine",
        f"{machine.name}, {machine.threads} threads, matrix products at {machine.peak_flops / 1e9:.0f} GFLOP/s"
        + (" (oneDNN)" if machine.matmul == "onednn" else "")
        + (" in bf16" if machine.precision == "bf16" else ""),
    )
    if record.get("prepared"):
        recipe = validate(Recipe, read_json(folder.path / "recipe.json"), str(folder.path / "recipe.json"))
        prepared = prepare_again(request, recipe, folder.path, record, talk)
    else:
        prepared = prepare(request, machine, talk)
        record = _begin(folder, record, prepared, machine)
    if prepared.choices:
        rows = [(choice.field, *choice.shown(), choice.reason) for choice in prepared.choices]
        talk.tabulate("fitted", ("to the budget", "published", "here", "because"), rows)
    talk.say(
        "plan",
        f"{prepared.recipe.name} for {request.budget}: about {prepared.expected_tokens / 1e6:.3g} M tokens, "
        f"{prepared.recipe.training.batch_sequences} sequences a step, peak learning rate "
        f"{prepared.recipe.training.learning_rate:g}, into {folder.path}",
    )
    if prepared.start is not None:
        talk.say("begins", prepared.start.told())
    session = Session(
        folder=folder,
        recipe=prepared.recipe,
        text=prepared.text,
        budget=request.budget,
        seed=request.seed,
        machine=machine,
        expected_tokens=prepared.expected_tokens,
        talk=talk,
        teacher=None if prepared.teacher is None else build_teacher(prepared.teacher, prepared.recipe),
        start=prepared.start,
        tokens_per_microbatch=_tokens_per_microbatch(record, prepared.recipe, machine),
        compiles=compiles,
    )
    with stop_on_signals() as stop:
        end = session.run(stop, checkpoint_minutes * 60)
    run = Run(
        folder=folder.path,
        finished=end.finished,
        steps=end.spent.steps,
        tokens=end.spent.tokens,
        epochs=end.epochs,
        seconds=end.spent.seconds,
        held_out=end.held_out,
        baseline=end.baseline,
        fitted=record["fitted"],
        stopped_by=None if end.finished else stop.signal,
    )
    folder.write_record({**record, "result": run.to_json()})
    return run


def _begin(folder: RunFolder, record: Mapping[str, Any], prepared: Prepared, machine: Machine) -> dict[str, Any]:
    """Write all that a resumed run must find again; `run.json` last, since it says that the rest is there."""
    write_json(folder.path / "recipe.json", prepared.recipe.model_dump(mode="json"))
    card = read_json(prepared.card / "data_card.json")
    write_json(folder.path / "data_card.json", {**card, "levels": prepared.text.levels})
    page = (prepared.card / "data_card.md").read_text(encoding="utf-8")
    write_text(folder.path / "data_card.md", with_levels(page, prepared.text.levels))
    for place in (folder.path, folder.generator) if prepared.recipe.generator else (folder.path,):
        prepared.tokenizer.save(place, max_length=prepared.recipe.training.max_length)
    begun = {
        **record,
        "prepared": True,
        "clean_fingerprint": prepared.fingerprint,
        "words_fingerprint": words_fingerprint(prepared.recipe.words),
        "similar_words_fingerprint": prepared.text.similar_words_fingerprint,
        "expected_tokens": prepared.expected_tokens,
        "begun_with": None if prepared.start is None else prepared.start.to_json(),
        "teacher": None if prepared.teacher is None else prepared.teacher.to_json(),
        "fitted": [choice.to_json() for choice in prepared.choices],
        "machine": machine.to_json(),
        "tokens_per_microbatch": tokens_at_once(machine, prepared.recipe),
        "environment": environment(),
    }
    folder.write_record(begun)
    return begun


def _tokens_per_microbatch(record: Mapping[str, Any], recipe: Recipe, machine: Machine) -> int:
    # Dropout is keyed by micro-batches: a run goes on with those that it began with, on the same kind of device.
    kind = str(record.get("machine", {}).get("device", "")).partition(":")[0]
    kept: int = record.get("tokens_per_microbatch", 0) if kind == machine.device.type else 0
    return kept or tokens_at_once(machine, recipe)


def _run_of(result: Mapping[str, Any], folder: Path) -> Run:
    baseline = result["baseline"]
    return Run(
        **{
            **result,
            "folder": folder,  # It may have been moved since.
            "held_out": {kind: Measured(**value) for kind, value in result["held_out"].items()},
            "baseline": None if baseline is None else Baseline(**baseline),
        }
    )
