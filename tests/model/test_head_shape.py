"""The dimensions of an encoder that heads depend on."""

from maskwright.model.config import EncoderConfig


def test_heads_learn_widths_activation_and_epsilon() -> None:
    config = EncoderConfig(
        hidden_size=48, num_heads=2, embedding_size=16, hidden_activation="relu", layer_norm_eps=1e-5
    )
    shape = config.head_shape(73)
    assert (shape.hidden_size, shape.embedding_size, shape.vocab_size) == (48, 16, 73)
    assert (shape.hidden_activation, shape.layer_norm_eps) == ("relu", 1e-5)
    assert config.replace(embedding_size=None).head_shape(73).embedding_size == 48
