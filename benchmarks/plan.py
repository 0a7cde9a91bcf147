"""Whether the loss that `maskwright plan` predicts for a ten times longer run lies in its interval.

    python -m benchmarks.plan bert/tiny=novels.jsonl.gz albert/tiny=docs.jsonl.gz --tokens 1e6 --out DIR

Each try is a recipe and a corpus: four trials, the longest of `--tokens` tokens, then a run of ten times as many.
"""

import argparse
import json
from pathlib import Path

from maskwright.reporting.console import ConsoleReporter
from maskwright.study.experiment import Experiment
from maskwright.study.plan import TRIAL_SHARES, PlannedRecipe, run_trials, with_prediction
from maskwright.study.record import StudyRecord
from maskwright.study.request import variants_of

LONGER = 10


def attempt(recipe: str, corpus: str, tokens: float, folder: Path, overrides: list[str]) -> dict[str, object]:
    """Predict and train; what is in the folder already is not trained again."""
    experiment = Experiment(
        record=StudyRecord(folder, {"format": 1}),
        vocabulary_tokens=LONGER * tokens,
        options={"device": "auto", "precision": "auto"},
        prepare={"cache": None, "workers": None},
        reporter=ConsoleReporter(),
    )
    text = experiment.prepare_text((corpus,))
    (variant,) = variants_of([recipe], {}, overrides).values()
    amounts = [share / TRIAL_SHARES[-1] * tokens for share in TRIAL_SHARES] + [LONGER * tokens]
    (*trials, (reached, measured)), by, _ = run_trials(experiment, variant, amounts, text)
    planned = PlannedRecipe(
        recipe=recipe, tokens=reached, steps=0, epochs=0, flops_per_second=0, memory=0, trials=tuple(trials), by=by
    )
    planned = with_prediction(planned)
    is_inside = planned.low is not None and planned.high is not None and planned.low <= measured <= planned.high
    return {
        "recipe": recipe, "corpus": Path(corpus).name, "trials": trials, "tokens": reached, "found": measured,
        "predicted": planned.loss, "low": planned.low, "high": planned.high, "inside": is_inside, "note": planned.note,
    }  # fmt: skip


def main() -> None:
    """Run the tries and print one line of JSON each, then how many were inside."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tries", nargs="+", metavar="RECIPE=CORPUS")
    parser.add_argument("--tokens", type=float, default=1e6, help="tokens of the longest trial")
    parser.add_argument("--set", action="append", default=[], help="override a recipe field")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    results = []
    for number, each in enumerate(arguments.tries):
        recipe, _, corpus = each.partition("=")
        folder = arguments.out / f"{number}-{recipe.replace('/', '-')}"
        results.append(attempt(recipe, corpus, arguments.tokens, folder, arguments.set))
        print(json.dumps(results[-1]), flush=True)
    predicted = [each for each in results if each["predicted"] is not None]
    print(f"{sum(bool(each['inside']) for each in predicted)} of {len(predicted)} predictions inside their interval")


if __name__ == "__main__":
    main()
