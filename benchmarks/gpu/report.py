"""Tables of the results of jobs, as Markdown."""

import json
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.gpu.jobs import JOBS, Case
from benchmarks.gpu.run import CALL, END
from benchmarks.table import Table, number

SCORES: Mapping[str, tuple[tuple[str, str, float], ...]] = {
    "masked": (("word_loss", "loss per word, nats", 1), ("word_accuracy", "words right, %", 100)),
    "blimp": (("minimal_pairs", "BLiMP, %", 100),),
    "intrinsic": (("next_sentence", "next sentence, %", 100), ("sentence_order", "sentence order, %", 100)),
}
"""Of the probes that are no tasks: the scores that are shown, the column and the factor of each."""

Results = Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]
"""By case and part: the contents of different files."""


def report(files: Iterable[str]) -> str:
    """Return a table for each job that has results, one of the device time, and the next job.

    Args:
        files: The texts of results.jsonl files. A part that several files have is a run of several seeds, unless it is
            a copy of the same line. Seeds are shown as mean, standard deviation and, in brackets, their number.
    """
    by_case: dict[str, dict[str, list[Mapping[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    calls = list[Mapping[str, Any]]()
    for text in files:
        last = {}  # A case that was killed and ran again has some parts twice.
        for line in map(json.loads, text.splitlines()):
            if line["part"] == CALL:
                calls += [line] * (line not in calls)
            else:
                last[line["case"], line["part"]] = line
        for (case, part), line in last.items():
            by_case[case][part] += [line] * (line not in by_case[case][part])
    tables = [table for name, job in JOBS.items() for table in _tables(name, job.question, job.cases, by_case)]
    waiting = [name for name, job in JOBS.items() if not all(by_case[case.name][END] for case in job.cases)]
    return "\n\n".join(
        [
            *(table.markdown() for table in (*tables, _device_time(calls))),
            f"Next: `{waiting[0]}`. {JOBS[waiting[0]].question}" if waiting else "All jobs are done.",
        ]
    )


def _tables(name: str, question: str, cases: Sequence[Case], results: Results) -> list[Table]:
    """Return the table of a job, a run and its probes in one row, and the tables that the job measured itself."""
    rows: dict[str, dict[str, str]] = {}
    measured = list[Table]()
    for case in cases:
        row: dict[str, str] = {}
        for part, lines in results[case.name].items():
            if part == "error" and END in results[case.name]:
                continue  # It ran again.
            if "rows" in lines[0]:
                fields = ("title", "columns", "rows", "words")
                measured += [Table(**{field: line[field] for field in fields}) for line in lines]
            else:
                row |= _cells(part, lines)
        if row:
            # A probe that failed does not hide the error of its run.
            shown = rows.setdefault(case.run if case.kind == "probe" else case.name, {})
            shown |= {column: f"{shown[column]}; {cell}" if column == "error" and column in shown else cell
                      for column, cell in row.items()}  # fmt: skip
    columns = sorted(dict.fromkeys(column for row in rows.values() for column in row), key="error".__eq__)
    title = f"`{name}`: {question}"
    cells = [[run.removeprefix(f"{name} "), *(row.get(column, "") for column in columns)] for run, row in rows.items()]
    return [*([Table(title, ("case", *columns), cells)] if rows else []), *measured]


def _cells(part: str, lines: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    line = lines[-1]
    match part:
        case "run":
            runs = [each["run"] for each in lines]
            rates = [run["tokens"] / max(run["seconds"], 1e-9) for run in runs]
            return {
                "M tokens": number(runs[-1]["tokens"] / 1e6),
                "PFLOPs": number(runs[-1]["flops"] / 1e15),
                "seconds": number(statistics.fmean(run["seconds"] for run in runs)),
                "tokens/s": number(statistics.fmean(rates)),
                "kernels": "; ".join(line["messages"].get("kernels", [])),
            }
        case "resume":
            return {"after a kill": "same weights" if line["equal"] and line["kills"] else json.dumps(line["digests"])}
        case "tests":
            return {"tests": (line["output"].strip().splitlines() or ["no output"])[-1]}
        case "error":
            return {"error": line["error"].strip().splitlines()[-1]}
        case _ if part in SCORES:
            return {
                column: _spread([factor * each["scores"][score] for each in lines])
                for score, column, factor in SCORES[part]
                if all(score in each["scores"] for each in lines)
            }
        case _ if "metric" in line:
            column = f"{part}, {line['metric']} ({line['split']}), %"
            if len(lines) > 1:
                return {column: _spread([100 * each["scores"][each["metric"]]["mean"] for each in lines])}
            score = line["scores"][line["metric"]]
            return {column: _shown(100 * score["mean"], 100 * (score["sd"] or 0.0), line["seeds"])}
        case _:
            return {}


def _spread(values: Sequence[float]) -> str:
    return _shown(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0, len(values))


def _shown(mean: float, deviation: float, count: int) -> str:
    return number(mean) if count == 1 else f"{number(mean)} ± {number(deviation, 2)} ({count})"


def _device_time(calls: Sequence[Mapping[str, Any]]) -> Table:
    rows = [
        (
            call["date"],
            " + ".join(call["jobs"]),
            call["device"],
            number(call["minutes"]),
            f"{call['cases'] - call['not_ended']} of {call['cases']} cases ended",
        )
        for call in calls
    ]
    total = number(sum(call["minutes"] for call in calls))
    return Table("Device time", ("date", "jobs", "device", "minutes", "result"), [*rows, ("", "all", "", total, "")], 3)
