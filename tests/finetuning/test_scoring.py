"""Scoring computes what training does, by the fastest code for the processor; how far apart is stated here."""

import pytest
import torch
from tiny_tuned import EVERY, LABELS, pretrained, ragged

from maskwright.finetuning.fine_tuned import build
from maskwright.finetuning.tasks.multiple_choice import MultipleChoice
from maskwright.finetuning.tasks.question_answering import QuestionAnswering
from maskwright.finetuning.tasks.tagging import Tagging
from maskwright.finetuning.tasks.texts import Classification
from maskwright.kernels.setting import use_kernels
from maskwright.model.inference import InferenceEncoder

TASKS = {
    "sequence": Classification(labels=LABELS),
    "token": Tagging(labels=("O", "B-PER", "I-PER"), entities=True, metrics=("f1",)),
    "span": QuestionAnswering(),
    "choice": MultipleChoice(),
}


def made(folder, family, kind):
    """A model and a batch."""
    return build(pretrained(folder, family), TASKS[kind], seed=1), ragged(family, kind).batch


@pytest.mark.parametrize(("family", "kind"), EVERY)
def test_scores_are_those_of_the_modules(family, kind, tmp_path):
    model, batch = made(tmp_path, family, kind)
    with torch.inference_mode():
        wanted = model.scores(batch)
        exact = model.scores_from(InferenceEncoder(model.encoder, "fp32"), batch)
        with use_kernels(False):
            plain = model.scores_from(InferenceEncoder(model.encoder, "fp32"), batch)
    torch.testing.assert_close(exact, wanted, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(plain, wanted, atol=1e-5, rtol=1e-5)
