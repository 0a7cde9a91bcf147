"""Tables of results: the numbers are those of the standard library, every seed has its row, files hold them all."""

import re
from dataclasses import replace

import pytest

from maskwright.core.spec import override, parse_overrides
from maskwright.finetuning.hyperparameters import Hyperparameters, fit_training
from maskwright.finetuning.results import Results, SeedRow

DATA = {
    "train": {"name": "t.csv", "examples": 1000, "skipped": 2, "truncated": 1},
    "dev": {"name": "d|v.csv", "examples": 10, "skipped": 0, "truncated": 0},
}


def results(dev, test=None, kind="classification"):
    return Results(
        task="sst-2",
        kind=kind,
        model="runs/mine",
        data=DATA,
        settings={"epochs": 3.0, "batch_size": 32},
        rows=tuple(
            SeedRow(
                seed=seed,
                steps=10,
                best_epoch=2.0,
                dev={"accuracy": value, "f1": value / 2},
                test=None if test is None else {"accuracy": test[seed], "f1": 0.0},
            )
            for seed, value in enumerate(dev)
        ),
        notes=("Mind the gap.",),
    )


def test_the_best_seed_is_chosen_on_dev_and_its_test_score_reported():
    actual = results([0.5, 0.9, 0.9], [0.99, 0.7, 0.8])
    assert actual.best.seed == 1
    assert actual.spread("test")["accuracy"].best == 0.7
    assert actual.spread("test")["accuracy"].mean == pytest.approx(0.83)
    assert actual.spread("dev")["accuracy"].sd == pytest.approx(0.4 / 3**0.5)


def test_advice_names_baselines_that_are_no_worse_and_longer_training():
    rising = replace(
        results([0.7]),
        baselines={
            "majority class": {"dev": {"accuracy": 0.5}},
            "frozen vectors + logistic regression": {"dev": {"accuracy": 0.8}},
        },
    )
    assert [line for line in rising.advice if "majority" in line] == []
    [line] = rising.advice
    assert "frozen vectors" in line
    assert "0.7 against 0.8" in line
    assert line in rising.page()
    assert "Try `--set frozen=true`, another `--set learning_rate=...`" in line
    assert "--task embedding" not in line
    [line] = replace(rising, settings={**rising.settings, "frozen": True}).advice
    assert "frozen=true" not in line
    [line] = replace(rising, kind="regression", pairs=True).advice
    assert "frozen=true" not in line
    assert line.index("--task embedding") < line.index("learning_rate")
    [row] = rising.rows
    rising = replace(rising, baselines={}, rows=(replace(row, is_rising=True),))
    assert "`--set epochs=6 --set batch_size=32`" in rising.advice[0]
    rising = replace(rising, settings={"epochs": 3.0, "steps": 50})
    assert "`--set steps=100`" in rising.advice[0]
    assert rising.to_json()["advice"] == list(rising.advice)


def test_advised_settings_double_the_steps_of_little_data():
    def fit(settings, fixed):
        return fit_training(settings, 100, fixed, width=768, system="bert")[0]

    fitted = fit(Hyperparameters(), ())
    assert fitted.batch_size < Hyperparameters().batch_size
    rising = replace(results([0.7]), settings=fitted.model_dump())
    [line] = replace(rising, rows=(replace(rising.rows[0], is_rising=True),)).advice
    pairs = parse_overrides(re.findall(r"--set ([^ `]+)", line))
    advised = fit(override(Hyperparameters(), pairs), {name for name, _ in pairs})
    assert advised.total_steps(100) == 2 * fitted.total_steps(100)


def test_the_table_has_every_seed_and_both_parts():
    table = results([0.5, 0.9], [0.4, 0.8]).table()
    columns, rows = table.columns, table.rows
    assert columns == ["", "accuracy (dev)", "f1 (dev)", "accuracy (test)", "f1 (test)", "best epoch"]
    assert rows[0] == ["seed 0", "0.5000", "0.2500", "0.4000", "0.0000", "2"]
    assert [row[0] for row in rows] == ["seed 0", "seed 1", "mean", "standard deviation", "best (seed 1)"]
    assert all(len(row) == len(columns) for row in rows)


def test_pages_show_names_of_files_and_notes_as_text():
    actual = replace(
        results([0.5]),
        model="<script>m</script>",
        data={"dev": {**DATA["dev"], "name": "<b>`x`.csv"}},
        notes=("The class '<script>alert(1)</script>' has one example.",),
        baselines={"<i>": {"dev": {"accuracy": 0.1}}},
    )
    page = actual.page() + "".join(actual.data_lines())
    assert "<" not in page.replace("| < |", "")
    assert "\\`x\\`" in page
