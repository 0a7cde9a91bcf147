"""Scores, time and memory of fine-tuning a pretrained model on real data, against transformers' `Trainer`.

Training text is shuffled by a fixed seed; some of it is the development set, by which every contender selects its
epoch. What GLUE publishes as development set is the test set here, since GLUE's own has no labels. Contenders train in
turns, one seed after the other, in a process of their own. `Trainer` has the epochs, batch size, learning rate and
length that maskwright chose; its weight decay, warmup and dropout are BERT's, and it does not stop early.
"""

import csv
import dataclasses
import gzip
import json
import os
import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.runner import Contender, Settings, measure
from benchmarks.table import Table, number
from maskwright.core.storage.files import checksum, write_json

_SAME = ("epochs", "batch_size", "learning_rate", "max_length")
"""Settings of maskwright that `Trainer` gets, by the names of `Hyperparameters`."""
Row = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """A dataset: kind of task, selection metric, how to read a file of the data folder, and which files these are.

    `read` returns rows of one or two texts and a label; without it the files are read as they are. Without a file of
    its own, the development or test set is that many rows of the training file. Texts are in one of the three only.
    """

    kind: str
    metric: str
    read: Callable[[Path], list[Row]] | None = None
    train: str
    dev: str | int
    test: str | int
    most: int = 1 << 30

    def write(self, data: Path, folder: Path, *, most: int) -> dict[str, str]:
        """Write train.csv, dev.csv and test.csv, with at most `most` training rows, and return their paths."""
        if self.read is None:
            return {part: str(data / str(getattr(self, part))) for part in ("train", "dev", "test")}
        folder.mkdir(parents=True, exist_ok=True)
        sources = {"dev": self.dev, "test": self.test}
        parts = {part: self.read(data / of) for part, of in sources.items() if isinstance(of, str)}
        apart = {row[:-1] for part in parts.values() for row in part}
        # The training file may have a text with two labels too.
        by_text = {row[:-1]: row for row in sorted(self.read(data / self.train)) if row[:-1] not in apart}
        rows = list(by_text.values())
        random.Random(0).shuffle(rows)
        parts |= {part: [rows.pop() for _ in range(of)] for part, of in sources.items() if isinstance(of, int)}
        parts["train"] = rows[: min(self.most, most)]
        for part, chosen in parts.items():
            with open(folder / f"{part}.csv", "w", encoding="utf-8", newline="") as file:
                writer = csv.writer(file)
                writer.writerow((*("text", "text2")[: len(chosen[0]) - 1], "label"))
                writer.writerows(chosen)
        return {part: str(folder / f"{part}.csv") for part in parts}


def _columns(*columns: int) -> Callable[[Path], list[Row]]:
    """Return a reader of these columns of a GLUE file with a header."""

    def read(path: Path) -> list[Row]:
        lines = path.read_text(encoding="utf-8-sig").splitlines()[1:]
        return [tuple(line.split("\t")[column] for column in columns) for line in lines if line]

    return read


def _definitions(path: Path) -> list[Row]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [(entry["definition"], entry["lexfile"]) for entry in map(json.loads, file)]


DATA: Mapping[str, Data] = {
    "mrpc": Data(
        kind="classification", metric="accuracy", read=_columns(3, 4, 0),
        train="glue/MRPC/train.tsv", dev=367, test="glue/MRPC/dev.tsv", most=2000,
    ),
    "sst-2": Data(
        kind="classification", metric="accuracy", read=_columns(0, 1),
        train="glue/SST-2/train.tsv", dev=500, test="glue/SST-2/dev.tsv", most=2000,
    ),
    "sst-2-whole": Data(
        kind="classification", metric="accuracy", read=_columns(0, 1),
        train="glue/SST-2/train.tsv", dev=500, test="glue/SST-2/dev.tsv",
    ),
    "sts-b": Data(
        kind="regression", metric="spearman", read=_columns(7, 8, 9),
        train="glue/STS-B/train.tsv", dev=500, test="glue/STS-B/dev.tsv", most=2000,
    ),
    # WordNet's 45 classes of senses ("noun.food"), from their definitions.
    "wordnet": Data(
        kind="classification", metric="accuracy", read=_definitions,
        train="synonyms_en_oewn/oewn_synsets.jsonl.gz", dev=500, test=1000, most=2000,
    ),
    "wnut-17": Data(
        kind="tagging", metric="f1", train="wnut17_ner/wnut17train.conll", dev="wnut17_ner/emerging.dev.conll",
        test="wnut17_ner/emerging.test.annotated",
    ),
}  # fmt: skip


def compare_scores(model: Path, settings: Settings) -> Iterator[Table]:
    """Yield a table for each dataset. Finished runs in `settings.results` are not repeated.

    Raises RuntimeError if one of them has other settings, data or threads.
    """
    data = settings.data
    if data is None:
        raise RuntimeError("give the folder of the datasets with --data")
    for name, dataset in DATA.items():
        if settings.wants(name):
            folder = (settings.results or settings.scratch) / name
            files = dataset.write(data, folder, most=40 if settings.quick else 1 << 30)
            yield _compare(name, dataset, files, model, folder, settings)


def _compare(name: str, data: Data, files: Mapping[str, str], model: Path, folder: Path, settings: Settings) -> Table:
    runs: dict[str, list[dict[str, Any]]] = {}
    select = [f"task.metrics={data.metric}", *settings.set, *["epochs=1", "batch_size=8"] * settings.quick]
    for seed in range(settings.rounds or 1):
        common = {"model": str(model), **files, "kind": data.kind, "seed": seed}
        ours = _run("maskwright", "ours:Finetune", {**common, "set": select}, folder, settings)
        peer = {**common, "metric": data.metric, **{field: ours["settings"][field] for field in _SAME}}
        runs.setdefault("maskwright", []).append(ours)
        runs.setdefault("Trainer", []).append(_run("Trainer", "peers:TrainerFinetune", peer, folder, settings))
        frozen = {**common, "set": [*select, "frozen=true"]}
        runs.setdefault("maskwright, frozen", []).append(_run("frozen", "ours:Finetune", frozen, folder, settings))
    settings_shown = ", ".join(f"{field} {runs['maskwright'][0]['settings'][field]:g}" for field in _SAME)
    rows = [_row(each, finished) for each, finished in runs.items()]
    rows += [(each, number(score), "", "", "", "") for each, score in runs["maskwright"][0]["baselines"].items()]
    count = runs["maskwright"][0]["work"]
    return Table(
        f"{name}, {count:,} training examples; {settings_shown}",
        ("contender", f"{data.metric} on test", "wall time, s", "of it steps, s", "CPU time, s", "peak memory, MB"),
        rows,
    )


def _row(name: str, runs: Sequence[dict[str, Any]]) -> Row:
    scores = [run["score"] for run in runs]
    spread = f" ± {statistics.stdev(scores):.3f}" if len(scores) > 1 else ""
    times = (
        number(statistics.mean(run[key] for run in runs)) if key in runs[0] else ""
        for key in ("seconds", "steps", "cpu")
    )
    return (name, f"{statistics.mean(scores):.3f}{spread}", *times, number(max(run["peak"] for run in runs) / 1e6))


def _run(name: str, make: str, options: Mapping[str, Any], folder: Path, settings: Settings) -> dict[str, Any]:
    """Return the result of a contender's run with a seed, an earlier one if it is kept."""
    out = folder / f"{name}-{options['seed']}"
    kept = Path(f"{out}.json")
    request = {**options, **{part: checksum(Path(options[part])) for part in ("train", "dev", "test")}}
    request["threads"] = os.environ.get("OMP_NUM_THREADS")
    if kept.exists():
        result: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"))
        before = result.pop("request", {})
        if changed := [field for field in request if request[field] != before.get(field)]:
            raise RuntimeError(f"{kept} has another {', '.join(changed)}: name another folder with --results")
        return result
    contender = Contender(name=name, make=f"benchmarks.{make}", options={**options, "out": str(out)})
    (outcome,) = measure([contender], dataclasses.replace(settings, rounds=1, contenders=()), rounds=1, warm_up=0)
    if outcome.problem:
        raise RuntimeError(f"{folder.name}, {name}: {outcome.problem}")
    write_json(kept, {**outcome.rounds[0], "request": request})
    return outcome.rounds[0]
