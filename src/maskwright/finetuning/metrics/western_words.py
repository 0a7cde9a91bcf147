r"""Words of the text between Chinese characters, as the script of CMRC 2018 gets them from NLTK's `word_tokenize`.

These are the rules of the Penn Treebank's tokenizer (R. MacIntyre's script, University of Pennsylvania, 1995) as NLTK
3.10 applies them, for what can stand there: lower case, none of the characters that the script of CMRC takes out before
(- : _ * ^ / \ ~ ` + =, Chinese punctuation).

DEVIATION: `word_tokenize` first cuts the text into sentences by a trained model (punkt), which is not part of the
library; here such a text is one sentence. That can matter where a full stop stands before a space and is not the last
character: so it is in 9 of the 1,108 such texts in the answers of CMRC's dev and trial files ("st. felix", "terry a.
gates"), and none of these ends a sentence.
"""

import re
from functools import lru_cache

_RULES = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        # Quotes that open, and an apostrophe before a word that is no clitic.
        (r"[«‘„]", r" \g<0> "),
        (r'^"', r" `` "),
        (r"""(?<=[ (\[{<])(?:"|'')""", r" `` "),
        (r"(?<!\w)'(?!(?:re|ve|ll|m|t|s|d|n)\b)(?=\w)", r"' "),
        # The full stop at the very end, with the brackets and quotes that close after it.
        (r"""(?<=[^.])\.(?=[\]\)}>"'» ]*\s*$)""", r" . "),
        # A comma before anything but a digit. What it stands before is passed over, so of two commas one stays.
        (r",([^\d])", r" , \1"),
        (r",$", r" , "),
        (r"\.{2,}", r" \g<0> "),
        (r"[;@#$%&?!\u2012-\u2015]", r" \g<0> "),
        (r"([^'])' ", r"\1 ' "),
        (r"[][(){}<>]", r" \g<0> "),
        # Ends of the text count as spaces from here on.
        (r"\A|\Z", " "),
        # Quotes that close, and clitics.
        (r"»", r" » "),
        (r"''|\"", r" '' "),
        (r"\s+", " "),
        (r"([^' ])('[smd]?) ", r"\1 \2 "),
        (r"([^' ])('ll|'re|'ve|n't) ", r"\1 \2 "),
        # Two words written as one.
        (r"\b(can)(not)\b", r" \1 \2 "),
        (r"\b(d)('ye)\b", r" \1 \2 "),
        (r"\b(gim|lem)(me)\b", r" \1 \2 "),
        (r"\b(gon)(na)\b", r" \1 \2 "),
        (r"\b(got)(ta)\b", r" \1 \2 "),
        (r"\b(more)('n)\b", r" \1 \2 "),
        (r"\b(wan)(na)(?=\s)", r" \1 \2 "),
        (r" ('t)(is)\b", r" \1 \2 "),
        (r" ('t)(was)\b", r" \1 \2 "),
    )
)


@lru_cache(maxsize=1 << 12)
def western_words(text: str) -> tuple[str, ...]:
    """Cut a text into words, numbers and punctuation marks.

    Example:
        >>> western_words("it's 3,5% (getchu.com), ok.")
        ('it', "'s", '3,5', '%', '(', 'getchu.com', ')', ',', 'ok', '.')
    """
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return tuple(text.split())
