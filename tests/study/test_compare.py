"""Studies of toy recipes: spend, order, resuming, adding, and the report."""

import json
import math
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch
from markupsafe import Markup
from safetensors.torch import load_file
from toy_studies import TOY, write_corpus

from maskwright.cli.options import split_list
from maskwright.core.errors import CheckpointError, MaskwrightError, RecipeError, TrainingError
from maskwright.core.storage.files import read_json, write_json
from maskwright.data.cleaning.store import clean_corpus
from maskwright.data.shards.tokenize import tokenize_corpus
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.fitting.budget import Budget
from maskwright.fitting.resolve import Speed
from maskwright.reporting.reporter import Reporter
from maskwright.study import compare as module
from maskwright.study import experiment, probes
from maskwright.study import results as module_of_results
from maskwright.study.compare import Comparison, compare
from maskwright.study.experiment import Experiment, Outcome
from maskwright.study.rates import MIN_GAIN, RateTuning, best_factor
from maskwright.study.record import StudyRecord
from maskwright.study.report import sentences, summary
from maskwright.study.request import TUNING_SEED, tasks_of, variants_of
from maskwright.study.statistics import NO_DIFFERENCE, NOT_COMPARABLE
from maskwright.study.text import open_text
from maskwright.training import pretraining_run
from recording import Recorder

RECIPES = {"base": "bert/tiny", "words": "bert/tiny"}
FLOPS = 4e7
ONE_SEED = {"seeds": 1, "tasks": ("masked",)}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("studies")
    write_corpus(folder / "corpus.txt")
    return folder


@pytest.fixture(scope="module")
def study(shared: Path) -> Callable[..., Comparison]:
    def run(out: str, recipes: Any = RECIPES, **changes: Any) -> Comparison:
        work: dict[str, Any] = {"flops": FLOPS, "seeds": 2, "tasks": ("masked", "intrinsic")}
        fields = {"set": (*TOY, "words:masking=whole_word"), "clean": ("deduplicate=none",)}
        aside = {"workers": 1, "cache": shared / "cache", "reporter": Reporter()}
        with pytest.MonkeyPatch.context() as patch:
            if out != "whole":  # Its pages are tested; plots take longer than the runs.
                patch.setattr("maskwright.study.report.chart", lambda *_, **__: Markup())
            return compare(shared / "corpus.txt", recipes, out=shared / out, **(work | fields | aside | changes))

    return run


@pytest.fixture(scope="module")
def whole(study: Callable[..., Comparison]) -> Comparison:
    return study("whole")


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The runs that were not finished when `pretrain` was called, in order."""
    names: list[str] = []
    pretrain = experiment.pretrain

    def noted(*args: Any, out: Path, **rest: Any) -> Any:
        record = out / "run.json"
        if not (record.is_file() and read_json(record).get("result", {}).get("finished")):
            names.append(f"{out.parent.name}/{out.name}")
        return pretrain(*args, out=out, **rest)

    monkeypatch.setattr(experiment, "pretrain", noted)
    return names


def results(folder: Path) -> dict[str, Any]:
    report: dict[str, Any] = read_json(folder / "report.json")
    report.pop("made_by")
    return {**report, "corpus": None}


def test_all_runs_spend_the_same_on_the_same_text_with_the_same_vocabulary(whole: Comparison) -> None:
    assert whole.finished
    recipes = whole.report["recipes"]
    for run in (run for recipe in recipes.values() for run in recipe["spent"].values()):
        assert FLOPS <= run["flops"] < FLOPS + 1.5 * run["flops"] / run["steps"], "at most one batch more"
    runs = sorted((whole.folder / "runs").glob("*/seed-*"))
    assert len(runs) == 4
    assert len({(run / "tokenizer.json").read_bytes() for run in runs}) == 1
    assert len({read_json(run / "run.json")["clean_fingerprint"] for run in runs}) == 1
    assert recipes["words"]["changes"][0]["axis"] == "masking"
    assert len({row["examples"] for row in whole.report["metrics"]["word_loss"]["rows"].values()}) == 1


def test_a_killed_study_gives_the_same_report(whole, study, monkeypatch, trained):
    measured, calls = probes.masked_words, iter(range(9))

    def killed(*args: Any) -> Any:
        if next(calls) == 2:  # After the first run and the untrained model.
            raise KeyboardInterrupt
        return measured(*args)

    with monkeypatch.context() as patch:
        patch.setattr(probes, "masked_words", killed)
        recorder = Recorder()
        with pytest.raises(KeyboardInterrupt):
            study("killed", reporter=recorder)
        assert recorder.messages[-1][0] == "stopped"
        assert any(each.startswith("measuring masked words (tasks) 0 of ") for each in recorder.progress)
    assert trained == ["base/seed-0", "words/seed-0"], "seed by seed"
    # The second run as if it had been killed before its first checkpoint.
    shutil.rmtree(whole.folder.parent / "killed" / "runs" / "words" / "seed-0")
    assert study("killed").finished
    assert trained[2:] == ["words/seed-0", "base/seed-1", "words/seed-1"]
    assert results(whole.folder.parent / "killed") == results(whole.folder)


def test_a_signal_to_a_run_that_finishes_stops_the_study(study, monkeypatch):
    filled = pretraining_run.sample_fills

    def signaled(*args: Any) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        return filled(*args)

    with monkeypatch.context() as patch:
        patch.setattr(pretraining_run, "sample_fills", signaled)
        assert not study("signaled", **ONE_SEED).finished
    assert [run.state for run in study("signaled", **ONE_SEED, dry_run=True).runs] == ["finished", "missing"]
    assert study("signaled", **ONE_SEED).finished


def test_adding_a_seed_runs_only_what_is_missing(whole, study, trained):
    before = {path: path.stat().st_mtime_ns for path in (whole.folder / "measurements").rglob("*.json")}
    again = study("whole")
    assert (trained, again.report["metrics"] if again.report else None) == ([], (whole.report or {})["metrics"])
    assert before == {path: path.stat().st_mtime_ns for path in (whole.folder / "measurements").rglob("*.json")}
    plan = study("whole", seeds=3, dry_run=True).runs
    missing = [(run.label, run.seed, run.state) for run in plan if run.to_measure]
    assert missing == [("base", 2, "missing"), ("words", 2, "missing")]
    assert all(run.flops == FLOPS for run in plan)
    grown = study("whole", seeds=3)
    assert trained == ["base/seed-2", "words/seed-2"]
    assert grown.report["seeds"] == [0, 1, 2]


def test_identical_recipes_show_no_difference_unless_they_are_on_the_plateau(study, monkeypatch):
    work = {"recipes": ["base=bert/tiny", "same=bert/tiny"], "set": TOY, **ONE_SEED, "seeds": 2, "flops": 1e7}
    first = study("same", **work).report
    for metric in first["metrics"].values():
        for row in metric["rows"].values():
            assert (row["verdict"], row["difference"]) == (NOT_COMPARABLE, None), "10 million FLOPs teach nothing"
    assert sentences(first)[0] == f"same against base: {NOT_COMPARABLE} in 2 metrics."
    assert "base, same" in sentences(first)[1]
    monkeypatch.setattr(module_of_results, "PLATEAU", 9.0)
    again = study("same", **work).report
    for metric in again["metrics"].values():
        assert metric["rows"]["same"]["verdict"] == NO_DIFFERENCE
        assert metric["rows"]["same"]["values"] == metric["rows"]["base"]["values"]


def test_metrics_are_compared_with_chance_the_unigram_model_and_an_untrained_model(whole: Comparison) -> None:
    metrics = whole.report["metrics"]
    assert len(list((whole.folder / "measurements" / "untrained").iterdir())) == 1, "one shape"
    for name, metric in metrics.items():
        for row in metric["rows"].values():
            assert row["untrained"] is not None
            assert row["chance"] is not None
            assert (row["unigram"] is not None) == (
                name in ("word_loss", "word_accuracy", "token_loss", "token_accuracy")
            )
    row = metrics["token_loss"]["rows"]["base"]
    size = read_json(whole.folder / "runs/base/seed-0/config.json")["vocab_size"]
    assert row["unigram"] < row["chance"] == pytest.approx(math.log(size))
    assert row["untrained"] == pytest.approx(row["unigram"], rel=0.05), "its bias starts at the unigram model"
    pages = [(whole.folder / f"report.{kind}").read_text(encoding="utf-8") for kind in ("md", "html", "csv")]
    assert all(all(name in page for name in ("chance", "unigram", "untrained")) for page in pages)
    table = summary(whole.report)
    assert [str(row[0]) for row in table.rows] == ["base (baseline)", "words", "chance", "unigram", "untrained"]
    at_chance = [each["title"] for each in metrics.values() if each["at_chance"]]
    assert not {str(name).rpartition("\n")[0].replace("\n", ", ") for name in table.columns} & {*at_chance}


def test_the_untrained_control_begins_as_its_runs_do(whole: Comparison, tmp_path: Path) -> None:
    run = Path(shutil.copytree(whole.folder / "runs/base/seed-0", tmp_path / "run"))
    cleaned = clean_corpus([write_corpus(tmp_path / "corpus.txt")], cache=tmp_path / "cache", workers=1)
    corpus = tokenize_corpus(cleaned, Tokenizer.from_folder(run), cache=tmp_path / "cache", workers=1)
    recipe, tables = read_json(run / "recipe.json"), []
    assert recipe["encoder"]["initial_embeddings"] == "cooccurrence"
    for start in ("cooccurrence", "random"):
        recipe["encoder"]["initial_embeddings"] = start
        write_json(run / "recipe.json", recipe)
        probes.save_untrained(run, corpus, tmp_path / start)
        tables.append(load_file(tmp_path / start / "model.safetensors"))
    changed = [name for name, table in tables[0].items() if not torch.equal(table, tables[1][name])]
    assert changed == ["bert.embeddings.word_embeddings.weight"]


@pytest.mark.parametrize(
    ("losses", "best"),
    [
        ({1.0: 5.0, 0.5: 4.0, 2.0: 6.0}, 0.5),
        ({1.0: float("nan"), 0.5: 5.0, 2.0: 4.0}, 2.0),
        ({1.0: 4.0, 0.5: 4.0, 2.0: None}, 1.0),
        ({1.0: 4.0, 0.5: 4.0 * (1 - 0.9 * MIN_GAIN), 2.0: 5.0}, 1.0),
        ({1.0: 4.0, 0.5: 4.0 * (1 - 1.1 * MIN_GAIN), 2.0: 5.0}, 0.5),
        ({1.0: float("nan"), 0.5: float("inf"), 2.0: None}, None),
    ],
)
def test_a_rate_that_diverged_or_nearly_ties_is_not_the_best(losses, best):
    assert best_factor(losses) == best


@pytest.mark.slow  # It trains four runs.
def test_rates_are_tried_on_another_seed_and_the_best_is_used(study, trained):
    free = tuple(each for each in TOY if not each.startswith("training.phases"))
    work = {"recipes": {"base": "bert/tiny"}, "set": free, **ONE_SEED, "flops": None, "tokens": 1e4, "tune_rate": True}
    planned = study("rates", **work, dry_run=True).runs
    assert [run.is_trial for run in planned] == [True, True, True, False]
    done = study("rates", **work)
    spent = done.report["recipes"]["base"]["spent"]["0"]["flops"]
    assert planned[-1].flops == pytest.approx(spent, rel=0.1), "counted with the fitted lengths"
    assert trained == [
        "base-rate-x1/seed-1000000",
        "base-rate-x0.5/seed-1000000",
        "base-rate-x2/seed-1000000",
        "base/seed-0",
    ]
    actual = done.report["rates"]["recipes"]["base"]
    fitted = actual["rates"]["1.0"]["rate"]
    assert {factor: each["rate"] for factor, each in actual["rates"].items()} == pytest.approx(
        {"1.0": fitted, "0.5": fitted / 2, "2.0": 2 * fitted}
    )
    assert actual["best"] == best_factor({float(name): each["loss"] for name, each in actual["rates"].items()})
    rate = actual["rates"][str(actual["best"])]["rate"]
    assert read_json(done.folder / "runs/base/seed-0/recipe.json")["training"]["learning_rate"] == rate
    assert {run.state for run in study("rates", **work, dry_run=True).runs} == {"finished"}
    assert study("rates", **work).finished
    assert len(trained) == 4
    with pytest.raises(CheckpointError, match="tune_rate was True"):
        study("rates", **(work | {"tune_rate": False}))
    for kind in ("md", "html"):
        assert "seed 1000000" in (done.folder / f"report.{kind}").read_text(encoding="utf-8")


def test_a_trial_that_diverged_has_the_flops_of_the_tokens_that_it_read(whole: Comparison, tmp_path: Path) -> None:
    folder = whole.folder / "runs" / "base" / "seed-0"
    shutil.copytree(folder, tmp_path / "runs" / "base" / f"seed-{TUNING_SEED}")

    class Diverging(Experiment):
        def train_and_measure(self, *_: Any) -> Outcome:
            raise TrainingError("the loss is NaN")

    options: dict[str, Any] = {"options": {}, "prepare": {}, "reporter": Reporter()}
    diverging = Diverging(record=StudyRecord(tmp_path, {}), vocabulary_tokens=0.0, **options)
    trial = next(iter(variants_of({"base": str(folder)}, {}, ()).values()))
    tried = RateTuning(diverging, Budget("flops", FLOPS))._try(trial, open_text(whole.folder / "text"))
    assert tried["loss"] is None
    assert tried["flops"] == pytest.approx(read_json(folder / "run.json")["result"]["flops"], rel=0.2)


def test_runs_of_other_settings_are_refused_before_any_training(whole, study, trained):
    recipes = {"new": "bert/tiny", **RECIPES}
    changed = (*TOY, "words:masking=whole_word", "base:masking.rate=0.3")
    with pytest.raises(CheckpointError, match="holds runs of other settings: base, seed 0; base, seed 1"):
        study("whole", recipes, set=changed)
    assert trained == []


def test_runs_of_changed_settings_are_not_called_finished(whole: Comparison, study: Callable[..., Comparison]) -> None:
    changed = (*TOY, "words:masking=whole_word", "base:masking.rate=0.3")
    states = {run.label: run.state for run in study("whole", set=changed, dry_run=True).runs}
    assert states == {"base": "of other settings", "words": "finished"}


class _Checked(HTMLParser):
    """Collects headings and ids, and checks that tags close and nothing is loaded from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = dict(attributes)
        assert not {"src", "srcset"} & values.keys()
        assert (values.get("href") or values.get("xlink:href") or "#").startswith("#")
        self.ids += [values["id"]] if values.get("id") else []
        if tag not in ("meta", "link", "wbr"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes)
        if self.open and self.open[-1] == tag:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_loads_nothing(whole: Comparison) -> None:
    page = (whole.folder / "report.html").read_text(encoding="utf-8")
    parser = _Checked()
    parser.feed(page)
    assert parser.open == []
    assert len({*parser.ids}) == len(parser.ids)
    sections = ["results", "plots", "differences", "spend", "recipes", "masks", "fills", "data", "made"]
    assert [id for id in parser.ids if id in sections] == sections
    assert page.count("<svg") >= 1
    assert "light-dark(" in page
    assert len(page) < 400_000
    table = (whole.folder / "report.csv").read_text(encoding="utf-8").splitlines()
    assert table[0] == "metric,unit,recipe,seed,value,examples,chance,unigram,untrained,verdict"
    report = read_json(whole.folder / "report.json")
    assert len(table) == 1 + 2 * len(report["seeds"]) * len(report["metrics"])
    assert "| masked words, accuracy, % | words |" in (whole.folder / "report.md").read_text(encoding="utf-8")


def test_another_budget_in_the_same_folder_is_refused(whole: Comparison, study: Callable[..., Comparison]) -> None:
    with pytest.raises(CheckpointError, match=r"requested was .*40000000.*now .*80000000"):
        study("whole", flops=2 * FLOPS)


def test_minutes_become_the_flops_of_the_baseline_once(whole, study, monkeypatch):
    monkeypatch.setattr(module, "measure_speed", lambda *_, **__: Speed(1e9))
    plan = study("timed", flops=None, minutes=2000, dry_run=True).runs
    # More than speed times time by what the last layers skip, less by held-out evaluations.
    assert 0.9 * 1.2e14 < plan[0].flops < 2 * 1.2e14
    assert {run.flops for run in plan} == {plan[0].flops}
    assert study("timed", flops=None, minutes=2, wall_clock=True, dry_run=True).runs[0].flops == 0, "not known before"
    with pytest.raises(RecipeError, match="--wall-clock needs --minutes"):
        study("timed", wall_clock=True, dry_run=True)
    assert not (whole.folder.parent / "timed").exists()


def test_variants_are_all_combinations_with_their_own_overrides() -> None:
    vary = {"masking": ["token", "whole_word"], "masks.copies": [1, None]}
    actual = variants_of(["bert/tiny", "low=roberta/tiny"], vary, ["low:encoder.num_layers=1", "masking.rate=0.3"])
    assert len(actual) == 8
    low = actual["low masking=whole_word masks.copies=null"]
    assert (low.recipe.encoder.num_layers, low.recipe.masking.kind, low.recipe.masks.copies) == (1, "whole_word", None)
    assert actual["bert/tiny masking=token masks.copies=1"].recipe.encoder.num_layers == 2
    assert len({variant.folder for variant in actual.values()}) == 8
    assert {variant.recipe.masking.rate for variant in actual.values()} == {0.3}, "set in all maskings that vary"
    with pytest.raises(RecipeError, match="Name a second one"):
        variants_of(["bert/tiny", "bert/tiny"], {}, [])
    with pytest.raises(RecipeError, match="a list of texts"):
        variants_of(["bert/tiny"], {}, "masking.rate=0.3")
    with pytest.raises(RecipeError, match=r"unknown label 'lo'.*low"):
        variants_of(["low=bert/tiny"], {}, ["lo:masking.rate=0.3"])


def test_tasks_are_checked_before_anything_runs(tmp_path: Path) -> None:
    actual = tasks_of(["masked", f"blimp={tmp_path}", f"reviews:classification={tmp_path}"])
    kinds = {task.name: task.kind for task in actual}
    assert kinds == {"masked": "masked", "blimp": "minimal-pairs", "reviews": "classification"}
    for wrong, message in (
        ("maskd", "Did you mean 'masked'"),
        ("blimp", "blimp=PATH"),
        ("blimp=/nowhere", "there is no /nowhere"),
        (f"masked={tmp_path}", "masked alone"),
    ):
        with pytest.raises(RecipeError, match=message):
            tasks_of([wrong])


def test_a_missing_teacher_is_named_before_anything_runs(study: Callable[..., Comparison], shared: Path) -> None:
    with pytest.raises(RecipeError, match=r"learns from a teacher.*small:teacher\.model="):
        study("taught", recipes=["bert/tiny", "small=distilbert/tiny"], set=())
    assert not (shared / "taught").exists()


def test_lists_are_split_at_commas_outside_of_brackets() -> None:
    assert split_list("a, b=[x,y],{c: [1], d: 2},e") == ["a", "b=[x,y]", "{c: [1], d: 2}", "e"]


def test_a_fine_tuning_task_is_measured_with_equal_settings_and_resumed(
    study: Callable[..., Comparison], shared: Path
) -> None:
    rows = "".join(f"the {'old' if n % 2 else 'new'} captain {n}\t{n % 2}\n" for n in range(60))
    (shared / "ages.tsv").write_text("text\tlabel\n" + rows, encoding="utf-8")
    task = f"ages:classification={shared / 'ages.tsv'}"
    recipes = {"base": "bert/tiny", "other": "roberta/tiny"}
    settings = {"recipes": recipes, "set": TOY, "finetune_set": ("epochs=1",), "flops": 1e7, "seeds": 1}
    done = study("tuned", tasks=("masked", task), **settings)
    tuned = [read_json(done.folder / f"finetuning/{name}/seed-0/ages/run.json")["request"] for name in recipes]
    assert tuned[0]["settings"] == tuned[1]["settings"]
    assert tuned[0]["model"] != tuned[1]["model"]
    row = done.report["metrics"]["ages"]["rows"]["base"]
    assert 0 <= row["mean"] <= 1
    assert row["by"] == "dev"
    measured = json.loads((done.folder / "measurements/base/seed-0/ages.json").read_text())
    assert measured["definition"]["set"] == ["epochs=1"]


@pytest.mark.parametrize(
    ("tasks", "finetune_set", "message"),
    [
        (["ages:classification=FILE"], ["epoch=1"], "Did you mean 'epochs'"),
        (["ages:classification=EMPTY"], [], "holds no examples"),
        (["blimp=EMPTY"], [], "cannot read minimal pairs"),
        (["ages:reranking=EMPTY"], [], "holds no examples"),
        ([], ["epochs=1"], "without a task of `finetune`"),
    ],
)
def test_tasks_are_checked_before_any_training(tasks, finetune_set, message, study, shared):
    files = {"FILE": "text\tlabel\na\tx\nb\ty\n" * 20, "EMPTY": "text\tlabel\n"}
    for name, content in files.items():
        (shared / f"{name}.tsv").write_text(content, encoding="utf-8")
        tasks = [task.replace(name, str(shared / f"{name}.tsv")) for task in tasks]
    with pytest.raises(MaskwrightError, match=message):
        study("unchecked", recipes=["bert/tiny"], tasks=["masked", *tasks], finetune_set=finetune_set, set=TOY)
    assert not (shared / "unchecked").exists()


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_folder_of_other_files_is_refused_and_left_alone(dry_run, study, shared, tmp_path):
    (shared / "foreign/text/train").mkdir(parents=True, exist_ok=True)
    (shared / "foreign/text/train/own.txt").write_text("Own.", encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"holds no study \(found text\)"):
        study("foreign", recipes=["bert/tiny"], dry_run=dry_run, set=TOY)
    names = {path.relative_to(shared / "foreign").as_posix() for path in (shared / "foreign").rglob("*")}
    assert names == {"text", "text/train", "text/train/own.txt"}
