import pytest
import torch
from packed_batches import packed
from torch.utils.flop_counter import FlopCounterMode

from maskwright.kernels.setting import use_kernels
from maskwright.model.config import EncoderConfig
from maskwright.model.encoder import Encoder
from maskwright.model.sizes import count_parameters, flops_per_token
from maskwright.pretext.objectives import MaskedLanguageModeling, NextSentencePrediction


def _bert(layers, hidden, **more):
    return EncoderConfig(
        num_layers=layers, hidden_size=hidden, num_heads=hidden // 64, intermediate_size=4 * hidden, **more
    )


def _albert(layers, hidden, width=128, sharing="all", **more):
    return _bert(layers, hidden, embedding_size=width, sharing=sharing, **more)


def test_parameters_by_part_are_those_of_the_module():
    config = _albert(12, 768, sharing="attention").replace(num_groups=4)
    with torch.device("meta"):
        model = Encoder(config, 30000)
    parts = count_parameters(config, 30000)
    names = {"attention": "attention_blocks", "ffn": "ffn_blocks"}
    modules = {part: getattr(model, names.get(part, part.replace(" ", "_"))) for part in parts}
    assert parts == {
        name: sum(p.numel() for p in module.parameters()) if module else 0 for name, module in modules.items()
    }
    assert sum(parts.values()) == sum(p.numel() for p in model.parameters())
    assert parts["attention"] == 4 * 2_363_904
    assert parts["ffn"] == 12 * 4_723_968


@pytest.mark.parametrize("config", [_bert(3, 128), _albert(3, 128, 32).replace(pooler=False)])
def test_flops_formula_equals_a_count_of_a_real_training_step(config):
    vocab_size, length, targets, sequences = 101, 16, 5, 16
    batch = packed((length,) * sequences, length)
    model = Encoder(config, vocab_size)
    objective = MaskedLanguageModeling()
    shape = config.head_shape(vocab_size)
    head = objective.head(shape)
    classifier = torch.nn.Linear(config.hidden_size, 2)
    # The counter does not see into the C code.
    with use_kernels(False), FlopCounterMode(display=False) as forward:
        output = model(batch)
        logits = objective.logits(head, output.hidden[:targets], model.word_embeddings.weight)
        scores = None if output.pooled is None else classifier(output.pooled)
    loss = logits.logsumexp(1).sum() + (0 if scores is None else scores.logsumexp(1).sum())
    with FlopCounterMode(display=False) as backward:
        loss.backward()
    pairs = sequences if config.pooler else 0
    heads = targets * objective.flops(shape) + pairs * NextSentencePrediction().flops(shape)
    expected = batch.num_tokens * flops_per_token(config, length=length) + 3 * heads
    assert expected == pytest.approx(forward.get_total_flops() + backward.get_total_flops(), rel=1e-12)
    assert forward.get_total_flops() * 2 == backward.get_total_flops()


def test_flops_of_unequal_lengths_are_those_of_each_length():
    config, lengths = _bert(2, 128), (7, 30, 128)
    total = sum(lengths)
    alone = sum(n * flops_per_token(config, length=n) for n in lengths)
    together = total * flops_per_token(
        config, length=sum(n * n for n in lengths) / total, sequences_per_token=len(lengths) / total
    )
    assert together == pytest.approx(alone)


def test_windows_shorten_what_a_token_attends_to() -> None:
    config = _bert(4, 128, attention_window=10, global_attention_every=2)
    assert flops_per_token(config, length=21) == flops_per_token(_bert(4, 128), length=21)
    saved = flops_per_token(_bert(4, 128), length=100) - flops_per_token(config, length=100)
    assert saved == 3 * 2 * 4 * (100 - 21) * 128  # In two of four layers.
