"""Every lever can be taken away: a step is taken without it, and its loss is that of the whole step to rounding."""

from pathlib import Path

import pytest
import torch

from benchmarks import levers
from benchmarks.own import OwnStep
from benchmarks.settings import Settings
from benchmarks.shapes import TINY, chosen
from benchmarks.workloads import Source, mlm_recipe, text_for


def test_a_step_without_any_lever_has_the_same_loss(tmp_path: Path) -> None:
    settings = Settings(scratch=tmp_path, quick=True, sizes=("tiny",))
    (shape,) = chosen(settings, (TINY,))
    text = text_for(shape, settings)
    source = Source(mlm_recipe(shape, dropout=0.0, batch=shape.documents), text)
    losses = dict[str, float]()
    for lever in [levers.Lever("nothing"), *levers.levers()]:
        own = OwnStep(source.recipe, text, autocast=lever.autocast)
        (batch,) = levers.lever_steps(lever, source, shape, settings, 512)
        with own.around(), lever.around():
            losses[lever.instead] = own.step(batch)
    whole = losses.pop("nothing")
    rounded = losses.pop("bf16 products (rounded)")
    assert losses == {name: pytest.approx(whole, rel=1e-5) for name in losses}
    assert rounded == pytest.approx(whole, rel=1e-2)


def test_usual_dropout_is_computed_by_pytorch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every dropout of a step: after the embeddings, in and after attention, after the feed-forward part."""
    settings = Settings(scratch=tmp_path, quick=True, sizes=("tiny",))
    (shape,) = chosen(settings, (TINY,))
    text = text_for(shape, settings)
    source = Source(mlm_recipe(shape, dropout=0.1, batch=shape.documents), text)
    own = OwnStep(source.recipe, text)
    (lever,) = (each for each in levers.levers() if each.instead.startswith("PyTorch's dropout"))
    (batch,) = levers.lever_steps(lever, source, shape, settings, 1 << 20)
    asked = []
    usual = torch.nn.functional.dropout
    monkeypatch.setattr(torch.nn.functional, "dropout", lambda *given: asked.append(1) or usual(*given))
    with own.around(), lever.around():
        own.step(batch)
    assert len(asked) == 1 + 3 * source.recipe.encoder.num_layers


def test_levers_are_put_back(tmp_path: Path) -> None:
    from maskwright.kernels import attention
    from maskwright.training import batches, model

    parts = (attention._BACKENDS["rows"], batches.pack, model.read_positions)
    before = torch.backends.mkldnn.matmul.fp32_precision
    for lever in levers.levers():
        with lever.batches(), lever.around():
            pass
    assert (attention._BACKENDS["rows"], batches.pack, model.read_positions) == parts
    assert torch.backends.mkldnn.matmul.fp32_precision == before
