"""Keep-first, exactly as a set of everything would."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.data.cleaning.block import BlockIndex
from maskwright.data.cleaning.deduplication import repeated, without_repeats
from maskwright.data.cleaning.overlap import band_hashes


def by_set(hashes: list[int]) -> list[bool]:
    seen: set[int] = set()
    flags = []
    for value in hashes:
        flags.append(value != 0 and value in seen)
        seen.add(value)
    return flags


HASHES = st.lists(
    st.one_of(st.integers(0, 3), st.sampled_from([2**64 - 1, 2**63, 2**63 + 1, 2**40]), st.integers(0, 2**64 - 1)),
    max_size=60,
)


@given(HASHES)
def test_repeats_are_those_of_a_set(hashes: list[int]) -> None:
    assert repeated(np.array(hashes, dtype=np.uint64)).tolist() == by_set(hashes)


def index_of(documents: list[list[list[str]]]) -> tuple[bytes, BlockIndex]:
    stored = "".join("".join("".join(line + "\n" for line in paragraph) for paragraph in d) + "\n" for d in documents)
    paragraphs = [paragraph for document in documents for paragraph in document]
    lengths = np.array([len("".join(paragraph).removeprefix(" ")) for paragraph in paragraphs], dtype=np.int64)
    return stored.encode(), BlockIndex(
        paragraphs=np.array([len(document) for document in documents], dtype=np.int64),
        stored_bytes=np.array([sum(len(line) + 1 for line in paragraph) for paragraph in paragraphs], dtype=np.int64),
        characters=lengths,
        text_bytes=lengths,
    )


DOCUMENTS = [[["One one.", " Two."], [" Three three."]], [["Four four."]], [["Five."], [" Six six."], [" Seven."]]]


@pytest.mark.parametrize(
    ("documents", "paragraphs", "minimum", "kept"),
    [
        ([], [], 1, "One one.\n Two.\n Three three.\n\nFour four.\n\nFive.\n Six six.\n Seven.\n\n"),
        ([1], [], 1, "One one.\n Two.\n Three three.\n\nFive.\n Six six.\n Seven.\n\n"),
        ([], [0], 1, "Three three.\n\nFour four.\n\nFive.\n Six six.\n Seven.\n\n"),
        ([], [1, 4], 1, "One one.\n Two.\n\nFour four.\n\nFive.\n Seven.\n\n"),
        ([], [3, 4], 8, "One one.\n Two.\n Three three.\n\nFour four.\n\n"),
        ([0, 1, 2], [], 1, ""),
    ],
)
def test_what_is_cut_out_leaves_whole_documents(documents, paragraphs, minimum, kept):
    data, index = index_of(DOCUMENTS)
    exact, near = np.isin(np.arange(3), documents[:1]), np.isin(np.arange(3), documents[1:])
    left, counts = without_repeats(data, index, exact, near, np.isin(np.arange(6), paragraphs), minimum)
    assert left.decode() == kept
    text = sum(len(line) for document in DOCUMENTS for paragraph in document for line in paragraph)
    assert (counts.repeated_documents, counts.near_documents) == (len(documents[:1]), len(documents[1:]))
    dropped = counts.repeated_document_characters + counts.near_document_characters
    dropped += counts.repeated_paragraph_characters + counts.remnant_characters
    assert len(kept.replace("\n", "")) == text - dropped


@pytest.mark.parametrize("alphabet", ["latin", "han"])
def test_documents_share_a_band_as_often_as_minhash_promises(alphabet: str) -> None:
    pytest.importorskip("rensa")
    draw = np.random.default_rng(0)
    words = [f"w{n}" for n in range(5000)] if alphabet == "latin" else [chr(0x4E00 + n) for n in range(5000)]
    counts = {0.5: 0, 0.8: 0}
    for similarity in counts:
        for _ in range(100):
            one = draw.choice(words, 400)
            # n replaced words at the end leave 396 - n of 396 + n sequences of five words in common.
            kept = 400 - round(396 * (1 - similarity) / (1 + similarity))
            other = np.concatenate([one[:kept], draw.choice(words, 400 - kept)])
            joint = " " if alphabet == "latin" else ""
            pairs = zip(band_hashes(joint.join(one)), band_hashes(joint.join(other)), strict=True)
            counts[similarity] += any(a == b for a, b in pairs)
    # 1 - (1 - s^8)^14: 5 and 92 %; the bounds are more than four standard deviations away.
    assert counts[0.5] < 17
    assert counts[0.8] > 80
