"""What was read of a file, said aloud."""

from collections import Counter
from typing import Any

from maskwright.core.amounts import counted
from maskwright.finetuning.examples import ExampleFile
from maskwright.finetuning.labels import counted_labels
from maskwright.training.reporting import Reporter

_LABELS_SHOWN = 12
_REASONS_SHOWN = 3


def tell(part: str, file: ExampleFile[Any], talk: Reporter) -> None:
    """Say what was read: counts, classes, what was left out with the first reasons, what was guessed."""
    counts = counted_labels(file.examples).most_common()
    shown = ", ".join(f"{label} {count:,}" for label, count in counts[:_LABELS_SHOWN])
    more = f" and {len(counts) - _LABELS_SHOWN} more" if len(counts) > _LABELS_SHOWN else ""
    talk.say(part, f"{counted(len(file.examples), 'example')} of {file.name}" + (f" ({shown}{more})" if counts else ""))
    for note in file.notes:
        talk.say("", note)
    if file.skipped:
        reasons = Counter(skipped.reason for skipped in file.skipped).most_common(_REASONS_SHOWN)
        first = {skipped.reason: skipped.place for skipped in reversed(file.skipped)}
        told = "; ".join(f"{reason} ({count:,}, first at {first[reason]})" for reason, count in reasons)
        talk.say("skipped", f"{counted(len(file.skipped), 'row')} left out: {told}")
