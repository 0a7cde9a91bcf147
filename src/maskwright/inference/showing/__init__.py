"""What a recipe does to a text, to be looked at: `show` computes it, `terminal` and `page` draw it."""

from maskwright.inference.showing.sequences import ShownSequence, ShownToken
from maskwright.inference.showing.show import Showing, show

__all__ = ["Showing", "ShownSequence", "ShownToken", "show"]
