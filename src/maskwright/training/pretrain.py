"""`maskwright.pretrain`: from a corpus and a recipe to a trained, loadable model."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from maskwright.checkpoints.sentence_folder import write_sentence_modules
from maskwright.core.errors import RecipeError
from maskwright.core.spec import overridden_fields, override, parse_overrides
from maskwright.core.storage.checksums import damaged_files
from maskwright.core.storage.files import checksum, read_json, write_json, write_text
from maskwright.core.text.amounts import pluralize, short_count
from maskwright.data.cleaning.data_card import card_page
from maskwright.data.cleaning.text import Cleaning
from maskwright.data.engines import Engine, check_workers, use_engine
from maskwright.data.tokenizers.files import TOKENIZER_FILES
from maskwright.data.words.annotator import words_fingerprint
from maskwright.data.words.span_facts import with_span_facts
from maskwright.fitting.budget import Budget
from maskwright.fitting.rules import report_fitted, reset_fields
from maskwright.kernels.setting import Kernels
from maskwright.recipes import DEFAULT_RECIPE
from maskwright.recipes.catalog import resolve
from maskwright.recipes.recipe import Recipe
from maskwright.recipes.saved import read_recipe
from maskwright.reporting.console import ConsoleReporter
from maskwright.reporting.reporter import Reporter
from maskwright.reporting.trackers import choose_trackers
from maskwright.training.extension import extend
from maskwright.training.pretraining_run import PretrainingRun
from maskwright.training.pretraining_run import RunResult as RunResult
from maskwright.training.ranks.device import Machine, Precision, pretraining_microbatch, restore_machine, use_machine
from maskwright.training.ranks.distributed import process_group, rank, rank_zero_first, world_size
from maskwright.training.ranks.gradients import GradientPrecision, gradient_dtype
from maskwright.training.ranks.interrupt import stop_on_signals
from maskwright.training.runs.checkpoint import save_tokenizer
from maskwright.training.runs.report import PAGE, write_page
from maskwright.training.runs.run_directory import RECORD, RunDirectory, environment
from maskwright.training.runs.session import open_session
from maskwright.training.start.continuation import EMBEDDER_WARNING, initial_recipe
from maskwright.training.start.preparation import PreparedRun, Request, prepare, restore_prepared

_FILES = ("recipe.json", "data_card.json")
_CARD_PAGE = "data_card.md"


def pretrain(
    corpus: str | Path | Sequence[str | Path],
    *,
    out: str | Path,
    recipe: str | Recipe | None = None,
    minutes: float | None = None,
    hours: float | None = None,
    steps: int | None = None,
    tokens: float | None = None,
    flops: float | None = None,
    set: Sequence[str] = (),
    as_published: bool = False,
    seed: int = 0,
    tokenizer: str | Path | None = None,
    init: str | Path | None = None,
    extend_vocabulary: int | str | Path | None = None,
    teacher: str | Path | None = None,
    held_out: str | Path | Sequence[str | Path] = (),
    clean: Sequence[str] = (),
    device: str = "auto",
    precision: Precision = "auto",
    gradient_precision: GradientPrecision = "fp32",
    kernels: Kernels = "auto",
    workers: int | None = None,
    engine: Engine | None = None,
    cache: str | Path | None = None,
    checkpoint_minutes: float = 1.0,
    keep: int = 0,
    mirror: str | None = None,
    report_to: Sequence[str] | None = None,
    reporter: Reporter | None = None,
) -> RunResult:
    """Train an encoder on a corpus. The same call again resumes an interrupted run, or finds a finished one.

    Args:
        corpus: Files, directories, globs, URLs (s3://...), `docstrings`, or Hugging Face dataset names; `PATH:WEIGHT`
            to mix.
        out: Run directory: new, empty, or of this same run, which resumes.
        recipe: Name of a recipe (see `maskwright recipes`) or path of a JSON file; without it `maskwright/mini`, with
            `init` the model's own shape, objectives and length.
        minutes: Budget: minutes of training. Give one budget; none is needed with `as_published`.
        hours: Budget: hours of training.
        steps: Budget: optimizer steps.
        tokens: Budget: training tokens, e.g. 1e8.
        flops: Budget: training FLOPs, e.g. 1e16.
        set: Override a field of the recipe, e.g. `masking.rate=0.3`.
        as_published: Keep the paper's schedule, batch, length and vocabulary instead of fitting them to the budget.
        seed: Random seed.
        tokenizer: Use this tokenizer directory instead of training a vocabulary.
        init: Start from this model (a run, a Hugging Face directory or hub name) and its tokenizer instead of random
            weights. It must have the recipe's shape, if a recipe is given.
        extend_vocabulary: With `init`: add N words of the corpus to the vocabulary, or those of a file, one per line.
        teacher: Teacher model of a recipe that learns from one, as distilbert/SIZE does; short for `teacher.model=...`
            in `set`.
        held_out: Text to measure the model on during training, named like the corpus. Default: a share of the corpus,
            chosen by the seed.
        clean: Override a field of the text cleaning, e.g. `deduplicate=none`.
        device: auto, cpu, cuda or cuda:N.
        precision: Precision of matrix multiplications: auto (bf16 on a GPU that supports it), fp32 or bf16. Weights,
            sums and losses are always fp32.
        gradient_precision: Precision in which several processes exchange gradients: fp32, or bf16, which halves the
            bytes and rounds every addition.
        kernels: auto (C attention on a CPU in fp32; kernels and CUDA graphs on a GPU in bf16, if they give the same
            loss and gradients on one batch) or reference (PyTorch).
        workers: Processes that prepare text. Default: one per core (at most 16), or all of a cluster.
        engine: Where text is prepared: local (processes of this machine, the default) or ray (a Ray cluster). In Python
            also an executor; None for that of an enclosing `data.engines.use_engine`, else "local".
        cache: Cache directory of prepared text; None for the user's.
        checkpoint_minutes: Time between checkpoints (longer if writing one would take over 3 % of it).
        keep: Keep N models in the folder `kept` of the run, at equal shares of the budget, the last one included.
        mirror: Copy the run directory to this URL (s3://, gs://, ...) after each checkpoint and at the end. Without
            `out` here, download the run of these arguments from there and resume it.
        report_to: Trackers that show the metrics: tensorboard, wandb, mlflow, trackio, or none. Without a network set
            WANDB_MODE=offline or MLFLOW_TRACKING_URI. Default: tensorboard, if it is installed.
        reporter: Where messages go; None for standard error.

    Raises:
        MaskwrightError: If an argument is invalid or the run cannot continue; nothing saved is lost.
    """
    continues = recipe is None and init is not None
    if recipe is None:
        recipe = DEFAULT_RECIPE if init is None else initial_recipe(str(init), Path(out).expanduser(), mirror)
    request = request_of(
        corpus,
        recipe=recipe,
        budget=Budget.of(steps=steps, tokens=tokens, minutes=minutes, hours=hours, flops=flops),
        seed=seed,
        set=set,
        as_published=as_published,
        tokenizer=tokenizer,
        init=init,
        extend_vocabulary=extend_vocabulary,
        teacher=teacher,
        held_out=held_out,
        clean=clean,
        precision=precision,
        gradient_precision=gradient_precision,
        workers=workers,
        cache=cache,
        fixed=("training.phases",) if continues else (),  # Its length is the model's.
    )
    if keep < 0:
        raise RecipeError(f"--keep is {keep}", allowed="a number of models from 0 on")
    check_workers(workers)
    trackers, exchanged = choose_trackers(report_to), gradient_dtype(gradient_precision)
    directory = RunDirectory(Path(out).expanduser())
    with (
        process_group(),
        (reporter or ConsoleReporter()) if rank() == 0 else Reporter() as reporter,
        open_session(directory, request.to_json(), reporter, mirror, extend) as (recorded, upload),
        ExitStack() as at_end,
    ):
        if recorded.get("result", {}).get("finished"):
            reporter.message("finished", f"{directory.path} is already trained; nothing to do")
            if rank() == 0:
                _restore_pages(directory, recorded.get("pages", {}), reporter)
            return RunResult.from_json(recorded["result"], directory.path)
        with rank_zero_first():
            record = recorded if rank() == 0 else read_json(directory.path / RECORD)
            machine, warning = restore_machine(record.get("machine", {}), device, request.cache, precision, kernels)
            machine = replace(machine, gradient_dtype=exchanged)
            if warning:
                reporter.message("warning", warning)
            at_end.enter_context(use_machine(machine))
            with use_engine(engine):
                prepared, record = _prepare(request, directory, record, machine, reporter)
            if record.pop("problem", None) and rank() == 0:
                directory.write_record(record)
        run = PretrainingRun(directory, request, prepared, record, machine, reporter, keep, upload, trackers)
        with stop_on_signals() as stop:
            result = run.run(stop, checkpoint_minutes * 60)
        if rank() == 0:
            directory.finish(result.to_json())
            _write_pages(directory, {}, reporter)
        return result


def request_of(
    corpus: str | Path | Sequence[str | Path],
    *,
    recipe: str | Recipe,
    budget: Budget | None,
    seed: int = 0,
    set: Sequence[str] = (),
    as_published: bool = False,
    tokenizer: str | Path | None = None,
    init: str | Path | None = None,
    extend_vocabulary: int | str | Path | None = None,
    teacher: str | Path | None = None,
    held_out: str | Path | Sequence[str | Path] = (),
    clean: Sequence[str] = (),
    precision: Precision = "auto",
    gradient_precision: GradientPrecision = "fp32",
    workers: int | None = None,
    cache: str | Path | None = None,
    fixed: Collection[str] = (),
) -> Request:
    """Return what `pretrain` trains with these arguments; raises RecipeError if one is invalid.

    `fixed` fields are not fitted to the budget, and neither are those in `set`.
    """
    pairs = parse_overrides(set)
    if teacher is not None:
        pairs.append(("teacher.model", str(teacher)))
    published = recipe if isinstance(recipe, Recipe) else resolve(str(recipe))
    chosen, kept = override(published, pairs), overridden_fields(pairs).union(fixed)
    if budget is None and not as_published:
        raise RecipeError(
            "no budget was given",
            hint="Give one, e.g. `--minutes 10` (or --hours, --steps, --tokens, --flops); `--as-published` alone uses "
            "the published number of steps.",
        )
    return Request(
        sources=_sources(corpus),
        recipe=chosen,
        fixed=kept,
        reset=reset_fields(published, chosen, kept),
        budget=budget or Budget("steps", chosen.training.steps),
        seed=seed,
        as_published=as_published,
        tokenizer=None if tokenizer is None else Path(tokenizer).expanduser(),
        init=None if init is None else str(init),
        extend_vocabulary=None if extend_vocabulary is None else _words_to_add(extend_vocabulary, init),
        cleaning=override(Cleaning(), parse_overrides(clean)),
        precision=precision,
        gradient_precision=gradient_precision,
        workers=workers,
        cache=None if cache is None else Path(cache).expanduser(),
        held_out=_sources(held_out),
    )


def _sources(corpus: str | Path | Sequence[str | Path]) -> tuple[str, ...]:
    return (str(corpus),) if isinstance(corpus, str | Path) else tuple(map(str, corpus))


def _words_to_add(words: int | str | Path, init: str | Path | None) -> int | str:
    if init is None:
        raise RecipeError(
            "--extend-vocabulary adds words to the vocabulary of an existing model, and none is given",
            hint="Name the model, `--init DIR_OR_HUB_NAME`. Without one, the vocabulary is learned from the corpus.",
        )
    text = str(words)
    if not text.removeprefix("-").isdecimal():
        return text
    if int(text) < 1:
        raise RecipeError(f"--extend-vocabulary is {text}", allowed="a number of words from 1 on, or a file")
    return int(text)


def _prepare(
    request: Request, directory: RunDirectory, record: dict[str, Any], machine: Machine, reporter: Reporter
) -> tuple[PreparedRun, dict[str, Any]]:
    """Prepare the text (again, if the run resumes) and report the plan. Return it with the run's record."""
    reporter.message(
        "machine",
        f"{machine.name}, {pluralize(machine.threads, 'thread')}, peak matmul throughput "
        f"{machine.peak_flops / 1e9:.0f} GFLOP/s in {machine.precision}"
        + (" (oneDNN)" if machine.matmul == "onednn" else ""),
    )
    # A run that died between its first model and its first checkpoint starts again from its --init or teacher. On other
    # ranks the record is that of rank 0's preparation.
    if record.get("prepared") and (rank() != 0 or directory.has_checkpoint()):
        recipe = read_recipe(directory.path / "recipe.json")
        prepared = restore_prepared(request, recipe, directory.path, record, reporter)
    else:
        prepared = prepare(request, machine, reporter)
        record = _write_run_files(directory, {"request": record["request"]}, prepared, machine)
    report_fitted(prepared.choices, reporter, field="recipe field", origin=prepared.recipe.origin)
    recipe = prepared.recipe
    reporter.message(
        "plan",
        f"{recipe.name}, {request.budget}: about {short_count(prepared.expected_tokens)} tokens in batches of "
        f"{recipe.training.batch_sequences} sequences, peak learning rate {recipe.training.learning_rate:g}; output in "
        f"{directory.path}",
    )
    if prepared.start is not None:
        reporter.message("weights", prepared.start.describe())
        if (modules := prepared.start.modules) is not None:
            lost = f"; its {modules.problem} cannot be kept" if modules.problem else ""
            reporter.message("warning", EMBEDDER_WARNING + lost)
    return prepared, record


def _write_run_files(
    directory: RunDirectory, record: Mapping[str, Any], prepared: PreparedRun, machine: Machine
) -> dict[str, Any]:
    """Write what resuming needs; `run.json` first, which makes the directory this run's, and last, to complete it."""
    directory.write_record(record)
    write_json(directory.path / "recipe.json", prepared.recipe.model_dump(mode="json"))
    card = read_json(prepared.cleaned.folder / "data_card.json")
    write_json(directory.path / "data_card.json", {**card, "levels": prepared.text.span_facts})
    write_text(directory.path / _CARD_PAGE, _data_card_page(directory))
    folders = save_tokenizer(directory.path, prepared.recipe, prepared.tokenizer)
    tokenizer_files = [folder / name for folder in folders for name in TOKENIZER_FILES if (folder / name).exists()]
    start, longest = prepared.start, prepared.recipe.training.max_length
    if start is not None and start.modules is not None and not start.modules.problem:
        hidden_size = prepared.recipe.encoder.hidden_size
        write_sentence_modules(directory.path, start.modules, hidden_size=hidden_size, max_length=longest)
    begun = {
        **record,
        "prepared": True,
        "files": {
            path.relative_to(directory.path).as_posix(): checksum(path)
            for path in (*(directory.path / name for name in _FILES), *tokenizer_files)
        },
        "clean_fingerprint": prepared.cleaned.fingerprint,
        "held_out_fingerprint": None if prepared.held_out is None else prepared.held_out.fingerprint,
        "words_fingerprint": words_fingerprint(prepared.recipe.words),
        "similar_words_fingerprint": prepared.text.similar_words_fingerprint,
        "expected_tokens": prepared.expected_tokens,
        "begun_with": None if start is None else {**start.to_json(), "card": start.card.to_json()},
        "teacher": None if prepared.teacher is None else prepared.teacher.to_json(),
        "fitted": [choice.to_json() for choice in prepared.choices],
        "machine": machine.to_json(),
        "tokens_per_microbatch": pretraining_microbatch(machine, prepared.recipe),
        "ranks": world_size(),
        "environment": environment(),
    }
    directory.write_record(begun)
    return begun


def _data_card_page(directory: RunDirectory) -> str:
    """Return the content of data_card.md, a function of data_card.json."""
    card = read_json(directory.path / "data_card.json")
    return with_span_facts(card_page(card), card["levels"])


def _write_pages(directory: RunDirectory, recorded: Mapping[str, str], reporter: Reporter) -> None:
    """Write the pages of a run, and their checksums into run.json; `recorded` are those that are there."""
    write_text(directory.path / _CARD_PAGE, _data_card_page(directory))
    write_page(directory.path, reporter)
    written = {name: checksum(directory.path / name) for name in (_CARD_PAGE, PAGE) if (directory.path / name).exists()}
    if written != recorded:
        directory.update_record(pages=written)


def _restore_pages(directory: RunDirectory, recorded: Mapping[str, str], reporter: Reporter) -> None:
    """Write the pages of a finished run again if one is missing or damaged."""
    problems = damaged_files(directory.path, recorded)
    for problem in problems.values():
        reporter.message("restored", f"{problem}: written again")
    if problems or not (directory.path / PAGE).exists():
        _write_pages(directory, recorded, reporter)
