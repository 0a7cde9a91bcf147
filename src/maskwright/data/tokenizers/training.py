"""Training of WordPiece, byte-level BPE and unigram vocabularies: the same bytes for the same text.

Sample. A vocabulary is trained on a bounded, seeded sample of the corpus and cached by fingerprint. Trainers store
every distinct word, so memory follows the text: 100 to 800 MB for 32 MB of English. The worst case is byte-level BPE of
a script without spaces, whose words are whole clauses: about 120 bytes for each byte of text.

Alphabet. A word with a character outside the alphabet becomes [UNK], so the alphabet is chosen by coverage: the usual
limit of 1,000 characters makes a tenth of Chinese text unknown. Printable ASCII is always included.

WordPiece. Pieces are merged by frequency (byte-pair encoding, Sennrich et al. 2016), as in every open trainer; Google's
was never published (google-research/bert, README, "Learning a new WordPiece vocabulary"). The trainer of the
`tokenizers` library numbers the "##" forms of characters in the order of a hash table and breaks ties by these numbers,
so two runs differ. Here it receives alphabet and "##" forms in a fixed order, which makes training deterministic.

Byte-level BPE. Laid out as RoBERTa's (Liu et al. 2019, section 4.4).

Unigram. Laid out as ALBERT's (albert: README.md:305-320): Kudo's (2018) unigram language model, trained by the
`sentencepiece` library on text that the tokenizer's normalizer has already cleaned. Only pieces and scores are kept.
Two choices differ from ALBERT's, so that `tokenizer.json` is complete and every tool gives the same ids:

DEVIATION: there are no user-defined symbols (ALBERT: eight punctuation marks). transformers 5 turns such symbols
into added tokens and puts a "▁" after each: other ids than ALBERT's code gives.

DEVIATION: ALBERT's code splits a piece again that ends in a comma after a digit ("5," -> "5" ","). Here no piece of the
vocabulary joins a digit to a following comma, so there is nothing to split.
"""

import io
import re
import string
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, trainers

from maskwright.core.errors import DataError
from maskwright.core.spec import fingerprint
from maskwright.core.storage.files import cache_folder
from maskwright.data.cache import open_or_build
from maskwright.data.cleaning.store import CleanCorpus
from maskwright.data.scripts import code_points, share_needing_marks
from maskwright.data.tokenizers.backends import (
    BYTE_BPE_NAMES,
    CONTINUATION,
    SPACE,
    UNIGRAM_NAMES,
    WORDPIECE_NAMES,
    albert_normalizer,
    bert_normalizer,
    byte_bpe_backend,
    byte_level,
    reserved,
    state_of,
    unigram_backend,
    wordpiece_backend,
)
from maskwright.data.tokenizers.spec import ByteBPE, TokenizerSpec, Unigram, WordPiece
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.reporting.reporter import Progress, no_progress

DEFAULT_SAMPLE_BYTES = 32 << 20
"""About 5 million English words or 10 million Chinese characters; more changes a vocabulary little."""

_MAX_TEXT_CHARACTERS = 1000
_VERSION = 2
_TEXTS_BETWEEN_REPORTS = 4096
_TEXTS_CHECKED = 10_000
"""Texts in which characters that need marks are counted."""


def train_tokenizer(
    spec: TokenizerSpec,
    clean: CleanCorpus,
    *,
    seed: int,
    max_sample_bytes: int = DEFAULT_SAMPLE_BYTES,
    cache: Path | None = None,
    progress: Progress = no_progress,
) -> Tokenizer:
    """Train a tokenizer on a sample of the corpus, or open it from the cache.

    The same corpus, spec and seed give the same bytes. The vocabulary is smaller than asked for if the corpus is too
    small to fill it; `special_tokens.vocab_size` is its actual size. `cache` is that of `clean_corpus`. Raises
    DataError if the corpus contains no text, DeviceError if the cache cannot be written.
    """
    key = fingerprint(["vocabulary", _VERSION, spec, clean.fingerprint, seed, max_sample_bytes])

    def make(folder: Path) -> None:
        texts = sample_texts(clean, max_sample_bytes, seed)
        train(spec, texts, _reported(texts, progress)).save(folder)

    return open_or_build((cache or cache_folder()) / f"tokenizer-{key}", Tokenizer.from_folder, make)


def sample_texts(clean: CleanCorpus, max_bytes: int, seed: int) -> list[str]:
    """Sample sentences in corpus order, the same for the same seed; DataError if there are none.

    None is longer than 1,000 characters, so that an unbroken run cannot stall training.
    """
    texts = [
        sentence[start : start + _MAX_TEXT_CHARACTERS]
        for sentence in clean.sample(max_bytes, seed)
        for start in range(0, len(sentence), _MAX_TEXT_CHARACTERS)
    ]
    if not texts:
        raise _without_text()
    return texts


def _without_text() -> DataError:
    return DataError(
        "cannot train a tokenizer: the corpus contains no text",
        hint="Look at the corpus and the cleaning report, then name files that contain text.",
    )


def _reported(texts: list[str], progress: Progress) -> Iterator[str]:
    for number, text in enumerate(texts):
        if number % _TEXTS_BETWEEN_REPORTS == 0:
            progress("training the tokenizer (texts)", number, len(texts))
        yield text
    progress("training the tokenizer (texts)", len(texts), len(texts))


COVERAGE = 0.99995
"""Minimum share of the sample's characters in the alphabet, as far as the vocabulary allows."""

FREQUENT = 100
"""A character seen this often is in the alphabet even beyond `COVERAGE`."""

MAX_SHARE = 0.8
"""Maximum share of the vocabulary for single characters."""


def choose_alphabet(
    texts: Iterable[str], limit: int, normalizer: normalizers.Normalizer, splitter: pre_tokenizers.PreTokenizer
) -> tuple[list[str], list[str]]:
    """Choose the single-character entries of a WordPiece vocabulary, at most `limit`: the most frequent first.

    Returns:
        Characters that may begin a word, and the "##" forms of those that occur inside words (not of ideographs and
        punctuation); both ascending.
    """
    counts = count_characters(texts, normalizer)
    total, covered = sum(counts.values()), 0
    wanted = []
    for character in _ranked(counts):
        if covered >= COVERAGE * total and counts[character] < FREQUENT:
            break
        wanted.append(character)
        covered += counts[character]
    # Addresses, code and numbers occur in later use even where the corpus has none.
    ascii_characters = _normalized(dict.fromkeys(string.printable, 1), normalizer)
    initial: list[str] = []
    continuing: list[str] = []
    for character in dict.fromkeys([*wanted, *sorted(ascii_characters)]):
        inside = len(splitter.pre_tokenize_str(normalizer.normalize_str(f"a{character}"))) == 1
        if len(initial) + len(continuing) + 1 + inside > limit:
            break
        initial.append(character)
        if inside:
            continuing.append(CONTINUATION + character)
    return sorted(initial), sorted(continuing)


def count_characters(texts: Iterable[str], normalizer: normalizers.Normalizer) -> dict[str, int]:
    """Return how often each character occurs in texts that a tokenizer has cleaned; white space is not counted."""
    counts = np.bincount(code_points("".join(texts)))
    return _normalized({chr(code): int(counts[code]) for code in np.flatnonzero(counts)}, normalizer)


def _ranked(counts: dict[str, int]) -> list[str]:
    return sorted(counts, key=lambda character: (-counts[character], character))


def _normalized(counts: dict[str, int], normalizer: normalizers.Normalizer) -> dict[str, int]:
    # Cleaning each distinct character once is the same as cleaning the text, and fast.
    result = Counter[str]()
    for character, count in counts.items():
        for cleaned in normalizer.normalize_str(character):
            if not cleaned.isspace():
                result[cleaned] += count
    return result


MIN_SHARE_NEEDING_MARKS = 0.01
"""From this share of characters on that need their combining marks, no mark is dropped. A choice, not measured."""


def _keeps_marks(texts: Sequence[str]) -> bool:
    """Return whether a text is damaged if combining marks are dropped.

    DEVIATION: uncased BERT and ALBERT drop them from every text, and with them the vowels of Hindi or Thai. Google's
    cased multilingual model, which keeps them, "fixes normalization issues in many languages" (bert: multilingual.md).
    """
    return share_needing_marks(texts[:: len(texts) // _TEXTS_CHECKED + 1]) >= MIN_SHARE_NEEDING_MARKS


MIN_FREQUENCY = 2
"""Pairs seen less often are not merged, so the vocabulary of a tiny corpus stays smaller than asked for."""


def train(spec: TokenizerSpec, texts: Sequence[str], reading: Iterable[str]) -> Tokenizer:
    """Train a tokenizer on texts; `reading` yields the same texts once more, and may report progress."""
    match spec:
        case WordPiece():
            return train_wordpiece(spec, texts, reading)
        case Unigram():
            return train_unigram(spec, texts, reading)
        case ByteBPE():
            return train_byte_bpe(spec, reading)


def train_wordpiece(spec: WordPiece, texts: Sequence[str], reading: Iterable[str]) -> Tokenizer:
    """Learn a vocabulary: [PAD] 0, [UNK] 1, [CLS] 2, [SEP] 3, [MASK] 4, characters, their "##" forms, pieces.

    DEVIATION: the special tokens have the first five ids, not Google's 0 and 100 to 103, which leave 99 ids unused.
    """
    normalizer = bert_normalizer(lowercase=spec.lowercase, keep_marks=_keeps_marks(texts))
    splitter = pre_tokenizers.BertPreTokenizer()
    limit = int(MAX_SHARE * (spec.vocab_size - len(WORDPIECE_NAMES)))
    initial, continuing = choose_alphabet(texts, limit, normalizer, splitter)
    backend = tokenizers.Tokenizer(models.WordPiece(unk_token=WORDPIECE_NAMES[1]))
    backend.normalizer, backend.pre_tokenizer = normalizer, splitter
    trainer = trainers.WordPieceTrainer(
        vocab_size=spec.vocab_size,
        min_frequency=MIN_FREQUENCY,
        show_progress=False,
        special_tokens=[*WORDPIECE_NAMES, *continuing],
        initial_alphabet=initial,
        limit_alphabet=len(initial),
        continuing_subword_prefix=CONTINUATION,
    )
    backend.train_from_iterator(reading, trainer)
    trained = backend.get_vocab()
    pieces = sorted(trained.keys() - {*WORDPIECE_NAMES, *continuing, *initial}, key=trained.__getitem__)
    entries = [*WORDPIECE_NAMES, *initial, *continuing, *pieces]
    vocabulary = {token: number for number, token in enumerate(entries)}
    return Tokenizer(wordpiece_backend(vocabulary, normalizer=normalizer), WORDPIECE_NAMES)


MAX_TOKEN_BYTES = 48
"""Longest token: rows of equals signs and repeated boilerplate would otherwise become entries."""


def train_byte_bpe(spec: ByteBPE, texts: Iterable[str]) -> Tokenizer:
    """Learn a vocabulary: <s> 0, <pad> 1, </s> 2, <unk> 3, the 256 bytes, merges, and <mask> last.

    A sentence within running text begins with its space.

    DEVIATION: merged tokens are in order of merging, not of corpus frequency as in RoBERTa's dict.txt, and there are no
    `madeupword` padding entries.
    """
    pad, unk, cls, sep, mask = BYTE_BPE_NAMES
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = byte_level()
    trainer = trainers.BpeTrainer(
        vocab_size=spec.vocab_size - 1,
        min_frequency=MIN_FREQUENCY,
        show_progress=False,
        special_tokens=[cls, pad, sep, unk],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        max_token_length=MAX_TOKEN_BYTES,
    )
    backend.train_from_iterator(texts, trainer)
    vocabulary = backend.get_vocab()
    vocabulary[mask] = len(vocabulary)
    merges = [(first, second) for first, second in state_of(backend.model)["merges"]]
    return Tokenizer(byte_bpe_backend(vocabulary, merges), BYTE_BPE_NAMES)


NUM_THREADS = 4
"""The trainer adds one partial sum per thread: the same number of threads gives the same bytes."""

MAX_TEXT_BYTES = 1 << 24
"""The trainer ignores longer texts (its default is 4,192); those of a sample are far shorter."""

_SCORE_DECIMALS = 6
_NEVER_JOINED = "\t"  # The trainer leaves tabs out of every count.
# Tabs with nothing on one side.
_IDLE_TABS = re.compile(r"(?:^|(?<= ))\t+|\t+(?=[\t ]|$)")
_DIGIT_BEFORE_COMMA = re.compile(r"(?<=\d)(?=,)")
# Characters that mean something to the trainer; it ignores texts that contain them.
_RESERVED_CHARACTERS = frozenset(f"{SPACE}\u2585\x00\t")


def train_unigram(spec: Unigram, texts: Sequence[str], reading: Iterable[str]) -> Tokenizer:
    """Learn a vocabulary: <pad> 0, <unk> 1, [CLS] 2, [SEP] 3, [MASK] 4, then pieces, most probable first.

    The characters that have entries of their own are all of printable ASCII and, most frequent first, as many as
    cover `spec.character_coverage` of the text or four fifths of the vocabulary hold.
    """
    import sentencepiece  # slow to import

    normalizer = albert_normalizer(lowercase=spec.lowercase, keep_marks=_keeps_marks(texts))
    counts = count_characters(texts, normalizer)
    if not counts.keys() - _RESERVED_CHARACTERS:
        raise _without_text()
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
    trained = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    # Rounded to single precision: JSON readers return longer numbers only approximately.
    pieces = [
        (trained.id_to_piece(id), round(trained.get_score(id), _SCORE_DECIMALS))
        for id in range(trained.get_piece_size())
    ]
    return Tokenizer(unigram_backend(reserved(pieces, UNIGRAM_NAMES), normalizer=normalizer), UNIGRAM_NAMES)


def _alphabet(counts: dict[str, int], spec: Unigram, normalizer: normalizers.Normalizer) -> frozenset[str]:
    # Addresses, code and numbers occur in later use even where the corpus has none. And the names of special tokens
    # can then be written in characters, so that "<pad>" in a text never becomes the padding token.
    chosen = set(count_characters([string.printable], normalizer))
    limit = max(len(chosen), int(MAX_SHARE * (spec.vocab_size - len(UNIGRAM_NAMES))))
    total = sum(counts.values())
    covered = sum(counts.get(character, 0) for character in chosen)
    for character in _ranked(counts):
        if covered >= spec.character_coverage * total or len(chosen) >= limit:
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
