"""Learning a SentencePiece unigram vocabulary, laid out as ALBERT's (albert: README.md:305-320).

The unigram language model of Kudo (2018): from very many candidate pieces those are kept without which the text
would lose most likelihood. The trainer of the `sentencepiece` library does the learning. It is given text that the
tokenizer's own cleaning has gone over already and does no cleaning itself, so learning and encoding see the same
characters; nothing of its model is kept but the pieces and their scores.

Two choices differ from ALBERT's, both so that one `tokenizer.json` says everything and every tool gives the same ids:

DEVIATION: there are no user-defined symbols (ALBERT: eight punctuation marks). transformers 5 turns such symbols
into added tokens and puts a "▁" behind each, other ids than ALBERT's own code gives.

DEVIATION: ALBERT's code splits a piece again that ends in a comma with a digit before it ("5," -> "5" ","). Here no
piece of the vocabulary joins a digit to a comma that follows it, so there is nothing to split again.
"""

import io
import re
import string
from collections.abc import Iterable, Iterator, Sequence

from tokenizers import normalizers

from maskwright.core.errors import DataError
from maskwright.data.alphabet import MAX_SHARE, count_characters
from maskwright.data.tokenizer import Tokenizer
from maskwright.data.tokenizer_backends import SPACE, UNIGRAM_NAMES, albert_normalizer, reserved, unigram_backend
from maskwright.data.tokenizer_spec import Unigram

NUM_THREADS = 4
"""The trainer adds up partial sums, one a thread: the same number of threads gives the same bytes."""

MAX_TEXT_BYTES = 1 << 24
"""Longer texts would be left out by the trainer (its own bound is 4,192); those of a sample are far shorter."""

_SCORE_DECIMALS = 6
_NEVER_JOINED = "\t"  # The trainer leaves tabs out of every count.
# The trainer learns little from words that hold nothing on one side of a tab.
_IDLE_TABS = re.compile(r"(?:^|(?<= ))\t+|\t+(?=[\t ]|$)")
_DIGIT_BEFORE_COMMA = re.compile(r"(?<=\d)(?=,)")
# Signs that the trainer gives a meaning of its own; texts that hold them would be left out.
_RESERVED_CHARACTERS = frozenset(f"{SPACE}\u2585\x00\t")


def train_unigram(spec: Unigram, texts: Sequence[str], reading: Iterable[str]) -> Tokenizer:
    """Learn a vocabulary: <pad> 0, <unk> 1, [CLS] 2, [SEP] 3, [MASK] 4, then pieces, most probable first.

    The characters that have entries of their own are all of printable ASCII and, most frequent first, as many as
    cover `spec.character_coverage` of the text or four fifths of the vocabulary hold.

    Args:
        spec: Size, casing and coverage.
        texts: The sample.
        reading: The sample once more, as it is to be read (an iterator that tells how far it is).

    Raises:
        DataError: If the texts hold no characters.
    """
    # A heavy start for those who never train one.
    import sentencepiece

    normalizer = albert_normalizer(lowercase=spec.lowercase)
    counts = count_characters(texts, normalizer)
    if not counts.keys() - _RESERVED_CHARACTERS:
        raise DataError(
            "a vocabulary cannot be learnt: the text holds no characters",
            todo="Look at the corpus and the cleaning report, then name files that hold text.",
        )
    alphabet = _alphabet(counts, spec, normalizer)
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=_clean(reading, normalizer, frozenset(counts) - alphabet),
        model_writer=model,
        model_type="unigram",
        vocab_size=spec.vocab_size,
        hard_vocab_limit=False,  # A small text gives fewer pieces instead of an error.
        character_coverage=1.0,  # Of what is left: other characters are cut out already.
        required_chars="".join(sorted(alphabet)),
        normalization_rule_name="identity",
        pretokenization_delimiter=_NEVER_JOINED,
        max_sentence_length=MAX_TEXT_BYTES,
        num_threads=NUM_THREADS,
        pad_id=0,
        unk_id=1,
        bos_id=-1,
        eos_id=-1,
        control_symbols=list(UNIGRAM_NAMES[2:]),
        minloglevel=2,
    )
    learnt = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    # Rounded to what single precision holds: JSON readers give back longer numbers only nearly.
    pieces = [
        (learnt.id_to_piece(id), round(learnt.get_score(id), _SCORE_DECIMALS)) for id in range(learnt.get_piece_size())
    ]
    return Tokenizer(unigram_backend(reserved(pieces, UNIGRAM_NAMES), normalizer=normalizer), UNIGRAM_NAMES)


def _alphabet(counts: dict[str, int], spec: Unigram, normalizer: normalizers.Normalizer) -> frozenset[str]:
    # Addresses, code and numbers come up in later use even where the corpus has none. Besides, the special tokens'
    # names can be spelt then, so that nobody who writes "<pad>" gets the padding token.
    chosen = set(count_characters([string.printable], normalizer))
    room = max(len(chosen), int(MAX_SHARE * (spec.vocab_size - len(UNIGRAM_NAMES))))
    total = sum(counts.values())
    covered = sum(counts.get(character, 0) for character in chosen)
    for character in sorted(counts, key=lambda character: (-counts[character], character)):
        if covered >= spec.character_coverage * total or len(chosen) >= room:
            break
        if character not in chosen and character not in _RESERVED_CHARACTERS:
            chosen.add(character)
            covered += counts[character]
    return frozenset(chosen)


def _clean(texts: Iterable[str], normalizer: normalizers.Normalizer, left_out: frozenset[str]) -> Iterator[str]:
    cut = str.maketrans(dict.fromkeys(left_out, _NEVER_JOINED))
    for text in texts:
        spaced = normalizer.normalize_str(text).replace(SPACE, " ")
        words = " ".join(spaced.split()).translate(cut)
        yield _DIGIT_BEFORE_COMMA.sub(_NEVER_JOINED, _IDLE_TABS.sub("", words))
