"""The published sizes of BERT-family systems."""

from dataclasses import dataclass

from maskwright.model.config import EncoderConfig


@dataclass(frozen=True, slots=True)
class Size:
    """Layers, hidden size and attention heads; the feed-forward size is four times the hidden size."""

    num_layers: int
    hidden_size: int
    num_heads: int


# Base and large: Devlin et al. 2019, section 3. The smaller ones: Turc et al. 2019 (arXiv:1908.08962). The larger
# ones: Lan et al. 2019, table 1. There are hidden_size / 64 heads everywhere but in xlarge, which keeps large's 16.
TINY = Size(2, 128, 2)
MINI = Size(4, 256, 4)
SMALL = Size(4, 512, 8)
MEDIUM = Size(8, 512, 8)
BASE = Size(12, 768, 12)
LARGE = Size(24, 1024, 16)
XLARGE = Size(24, 2048, 16)
XXLARGE = Size(12, 4096, 64)


def at_size(family: EncoderConfig, size: Size) -> EncoderConfig:
    """Return an encoder with the layers, widths and heads of a size."""
    return family.replace(
        num_layers=size.num_layers,
        hidden_size=size.hidden_size,
        num_heads=size.num_heads,
        intermediate_size=4 * size.hidden_size,
    )
