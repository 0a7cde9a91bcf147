"""BERT's, RoBERTa's and ALBERT's tokenizers, assembled from the parts of the tokenizers library.

WordPiece is Devlin et al. 2019 (google-research/bert, tokenization.py): clean, put spaces around CJK ideographs,
lower-case and strip accents, split at white space and punctuation, then longest piece first. Byte-level BPE is Radford
et al. 2019 (openai/gpt-2, encoder.py) with RoBERTa's special tokens (Liu et al. 2019). Unigram is Kudo 2018 with
ALBERT's cleaning (google-research/albert, tokenization.py:33-110), as transformers' AlbertTokenizer assembles it.

DEVIATION: two backticks and two apostrophes become a quotation mark (as in transformers, not in ALBERT's code), and all
combining marks are dropped (ALBERT: those of a combining class other than 0), because AlbertTokenizer does so and ids
must be the same in every tool. In text that needs them none are dropped, and they are composed (`training`).

DEVIATION: a word of more than 100 characters is unknown (Google: 200), because that is the limit of every BERT
tokenizer in use today, and ids must be the same in every tool.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors

from maskwright.core.errors import DataError, MaskwrightError

SpecialNames = tuple[str, str, str, str, str]
"""Written forms of (pad, unk, cls, sep, mask)."""

WORDPIECE_NAMES: SpecialNames = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
BYTE_BPE_NAMES: SpecialNames = ("<pad>", "<unk>", "<s>", "</s>", "<mask>")
UNIGRAM_NAMES: SpecialNames = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")

CONTINUATION = "##"
SPACE = "\u2581"
"""A unigram piece's mark of the space before it: "▁"."""

NEVER = -1000.0
"""Score of a piece that no text contains: far below that of any word written in single characters."""

MAX_WORD_CHARACTERS = 100


def bert_normalizer(*, lowercase: bool, keep_marks: bool = False) -> normalizers.Normalizer:
    """Return BERT's cleaning: no control characters, spaces around CJK ideographs; uncased also without accents.

    With `keep_marks`, marks are composed (NFC) instead, so that all forms of a text have the same ids.
    """
    cleaning = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=True,
        strip_accents=False if keep_marks else None,
        lowercase=lowercase,
    )
    return normalizers.Sequence([normalizers.NFC(), cleaning]) if keep_marks else cleaning


def byte_level() -> pre_tokenizers.PreTokenizer:
    """Return GPT-2's splitting of text into words (a leading space belongs to its word) and bytes."""
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def wordpiece_backend(
    vocabulary: Mapping[str, int], *, names: SpecialNames = WORDPIECE_NAMES, normalizer: normalizers.Normalizer
) -> tokenizers.Tokenizer:
    """Assemble a WordPiece tokenizer with the layout `[CLS] A [SEP] B [SEP]`, segments 0 and 1."""
    model = models.WordPiece(
        vocab=dict(vocabulary),
        unk_token=names[1],
        continuing_subword_prefix=CONTINUATION,
        max_input_chars_per_word=MAX_WORD_CHARACTERS,
    )
    backend = tokenizers.Tokenizer(model)
    backend.normalizer = normalizer
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix=CONTINUATION)
    return _with_segment_pairs(backend, names)


def byte_bpe_backend(
    vocabulary: Mapping[str, int], merges: Iterable[tuple[str, str]], *, names: SpecialNames = BYTE_BPE_NAMES
) -> tokenizers.Tokenizer:
    """Assemble a byte-level BPE tokenizer with the layout `<s> A </s></s> B </s>`.

    The mask token includes the space before it (`lstrip`), as in RoBERTa: "so <mask>." is the tokens "so",
    "<mask>", ".". Tokens are written in GPT-2's byte alphabet; merges are in order of merging.
    """
    _, _, cls, sep, mask = names
    backend = tokenizers.Tokenizer(models.BPE(vocab=dict(vocabulary), merges=list(merges)))
    backend.pre_tokenizer = byte_level()
    backend.decoder = decoders.ByteLevel()
    backend.post_processor = processors.RobertaProcessing(
        (sep, vocabulary[sep]), (cls, vocabulary[cls]), trim_offsets=True, add_prefix_space=False
    )
    _mark_special(backend, names, lstrip=mask)
    return backend


def albert_normalizer(*, lowercase: bool, keep_marks: bool = False) -> normalizers.Normalizer:
    """Return ALBERT's cleaning: NFKD without combining marks, or NFKC if they are kept; lower case if asked."""
    quotes = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    stripping = [normalizers.NFKC()] if keep_marks else [normalizers.NFKD(), normalizers.StripAccents()]
    lowering = [normalizers.Lowercase()] if lowercase else []
    return normalizers.Sequence([*quotes, *stripping, *lowering])


def spaced_words() -> pre_tokenizers.PreTokenizer:
    """Return sentencepiece's splitting at white space; every word is written with a "▁" before it."""
    return pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="always")]
    )


def unigram_backend(
    pieces: Sequence[tuple[str, float]], *, names: SpecialNames = UNIGRAM_NAMES, normalizer: normalizers.Normalizer
) -> tokenizers.Tokenizer:
    """Assemble a unigram tokenizer with the layout `[CLS] A [SEP] B [SEP]`, segments 0 and 1.

    Args:
        pieces: Piece and score (log probability), in order of id, as `reserved` returns them.
    """
    unk_id = [piece for piece, _ in pieces].index(names[1])
    backend = tokenizers.Tokenizer(models.Unigram(list(pieces), unk_id=unk_id, byte_fallback=False))
    backend.normalizer = normalizer
    backend.pre_tokenizer = spaced_words()
    backend.decoder = decoders.Metaspace(replacement=SPACE, prepend_scheme="always")
    return _with_segment_pairs(backend, names)


def is_albert_splitting(backend: tokenizers.Tokenizer) -> bool:
    """Return whether text is cleaned and split as ALBERT does it."""
    cleanings = [state_of(albert_normalizer(lowercase=lowercase)) for lowercase in (True, False)]
    return state_of(backend.normalizer) in cleanings and state_of(backend.pre_tokenizer) == state_of(spaced_words())


def parts_of(component: Any) -> list[dict[str, Any]]:
    """Return the states of a normalizer's or pre-tokenizer's parts; none of None. Sequences nest."""
    state = state_of(component)
    return [] if state is None else list(state.get("normalizers") or state.get("pretokenizers") or [state])


def drops_marks(backend: tokenizers.Tokenizer) -> bool:
    """Return whether combining marks are dropped: by a part for it, or by BERT's cleaning, unless it says otherwise."""
    return any(
        part["type"] == "StripAccents"
        or (part["type"] == "BertNormalizer" and part["strip_accents"] in (True, None if part["lowercase"] else True))
        for part in parts_of(backend.normalizer)
    )


def is_gpt2_splitting(splitting: pre_tokenizers.PreTokenizer | None) -> bool:
    """Return whether text is split as by `byte_level`."""
    return isinstance(splitting, pre_tokenizers.ByteLevel) and splitting.use_regex and not splitting.add_prefix_space


def running_text(backend: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """Change a unigram tokenizer, in place, so that it writes "▁" only for a space of the text.

    Text then continues after a special token as after a word. A text must begin with a space.
    """
    cleaning = [backend.normalizer] if backend.normalizer is not None else []
    one_space, none_at_end = normalizers.Replace(Regex(r"\s+"), " "), normalizers.Replace(Regex(" $"), "")
    backend.normalizer = normalizers.Sequence([*cleaning, one_space, none_at_end])
    backend.pre_tokenizer = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="never")
    return backend


def reserved(pieces: Iterable[tuple[str, float]], names: Iterable[str]) -> list[tuple[str, float]]:
    """Lower the scores of special tokens so that "<pad>" in a text is five characters.

    Unlike sentencepiece, the tokenizers library finds every entry in the text, and 0 would be the best score.
    """
    special = frozenset(names)
    return [(piece, min(score, NEVER) if piece in special else score) for piece, score in pieces]


@contextmanager
def library_errors(what: str = "the tokenizer cannot encode the text") -> Iterator[None]:
    """Turn faults that the tokenizers library finds into a DataError that begins with `what`."""
    try:
        yield
    except BaseException as error:
        # It raises bare `Exception`, and panics, e.g. where a regular expression backtracks without end.
        if isinstance(error, MaskwrightError) or not (
            isinstance(error, Exception) or type(error).__name__ == "PanicException"
        ):
            raise
        raise DataError(f"{what}: {error}", hint="Fetch or save the tokenizer again, or choose another.") from error


def state_of(component: Any) -> Any:
    """Return the settings of a part of a tokenizer, which the library has only in serialized form."""
    return None if component is None else json.loads(component.__getstate__())


def _with_segment_pairs(backend: tokenizers.Tokenizer, names: SpecialNames) -> tokenizers.Tokenizer:
    _, _, cls, sep, _ = names
    backend.post_processor = processors.TemplateProcessing(
        single=f"{cls}:0 $A:0 {sep}:0",
        pair=f"{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1",
        special_tokens=[(name, backend.token_to_id(name)) for name in (cls, sep)],
    )
    _mark_special(backend, names)
    return backend


def _mark_special(backend: tokenizers.Tokenizer, names: SpecialNames, lstrip: str = "") -> None:
    # In order of id, so that the serialized form does not depend on the order of the names.
    ordered = sorted(names, key=lambda name: backend.token_to_id(name) or 0)
    backend.add_special_tokens(
        [AddedToken(name, special=True, normalized=False, lstrip=name == lstrip) for name in ordered]
    )
