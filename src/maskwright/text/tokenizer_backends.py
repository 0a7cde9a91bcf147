"""BERT's and RoBERTa's tokenizers as assemblies of the tokenizers library's parts.

WordPiece is Devlin et al. 2019 (google-research/bert, tokenization.py): clean, space out CJK ideographs,
lower-case and strip accents, split at white space and punctuation, then longest piece first. Byte-level
byte-pair encoding is Radford et al. 2019 (openai/gpt-2, encoder.py) with RoBERTa's special tokens (Liu et al.
2019).

DEVIATION: a word of more than 100 characters is unknown (Google: 200), because that is the limit of every
BERT tokenizer in use today, and ids must be the same everywhere.
"""

from collections.abc import Iterable, Mapping

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors

SpecialNames = tuple[str, str, str, str, str]
"""Written forms of (pad, unk, cls, sep, mask)."""

WORDPIECE_NAMES: SpecialNames = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
BYTE_BPE_NAMES: SpecialNames = ("<pad>", "<unk>", "<s>", "</s>", "<mask>")

CONTINUATION = "##"
MAX_WORD_CHARACTERS = 100


def bert_normalizer(*, lowercase: bool) -> normalizers.Normalizer:
    """Return BERT's cleaning: no control characters, CJK ideographs apart, lower case and no accents if so."""
    return normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=lowercase
    )


def byte_level() -> pre_tokenizers.PreTokenizer:
    """Return GPT-2's splitting of text into words (a leading space belongs to its word) and bytes."""
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def wordpiece_backend(
    vocabulary: Mapping[str, int],
    *,
    names: SpecialNames = WORDPIECE_NAMES,
    normalizer: normalizers.Normalizer,
) -> tokenizers.Tokenizer:
    """Assemble a WordPiece tokenizer with the layout `[CLS] A [SEP] B [SEP]`, segments 0 and 1.

    Args:
        vocabulary: Token to id; holds all `names`.
        names: Written forms of (pad, unk, cls, sep, mask).
        normalizer: The cleaning, e.g. `bert_normalizer(lowercase=True)`.
    """
    _, unk, cls, sep, _ = names
    backend = tokenizers.Tokenizer(
        models.WordPiece(
            vocab=dict(vocabulary),
            unk_token=unk,
            continuing_subword_prefix=CONTINUATION,
            max_input_chars_per_word=MAX_WORD_CHARACTERS,
        )
    )
    backend.normalizer = normalizer
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix=CONTINUATION)
    backend.post_processor = processors.TemplateProcessing(
        single=f"{cls}:0 $A:0 {sep}:0",
        pair=f"{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1",
        special_tokens=[(cls, vocabulary[cls]), (sep, vocabulary[sep])],
    )
    _mark_special(backend, (AddedToken(name, special=True, normalized=False) for name in names))
    return backend


def byte_bpe_backend(
    vocabulary: Mapping[str, int],
    merges: Iterable[tuple[str, str]],
    *,
    names: SpecialNames = BYTE_BPE_NAMES,
) -> tokenizers.Tokenizer:
    """Assemble a byte-level BPE tokenizer with the layout `<s> A </s></s> B </s>`.

    The mask token takes the space before it (`lstrip`), as in RoBERTa: "so <mask>." is the tokens "so",
    "<mask>", ".".

    Args:
        vocabulary: Token (in GPT-2's byte alphabet) to id; holds all `names`.
        merges: Pairs of tokens in order of merging.
        names: Written forms of (pad, unk, cls, sep, mask).
    """
    _, _, cls, sep, mask = names
    backend = tokenizers.Tokenizer(models.BPE(vocab=dict(vocabulary), merges=list(merges)))
    backend.pre_tokenizer = byte_level()
    backend.decoder = decoders.ByteLevel()
    backend.post_processor = processors.RobertaProcessing(
        (sep, vocabulary[sep]), (cls, vocabulary[cls]), trim_offsets=True, add_prefix_space=False
    )
    _mark_special(backend, (AddedToken(name, special=True, normalized=False, lstrip=name == mask) for name in names))
    return backend


def _mark_special(backend: tokenizers.Tokenizer, tokens: Iterable[AddedToken]) -> None:
    # In order of id, so that the serialised form does not depend on the order of the names.
    backend.add_special_tokens(sorted(tokens, key=lambda token: backend.token_to_id(token.content) or 0))
