"""BERT-wwm (Cui et al. 2019) and Google's whole-word BERT: masks all pieces or characters of a word together.

No training code was released for the Chinese models; constants are from the README of ymcui/Chinese-BERT-wwm and from
the technical report. Other constants are BERT's, since the models were trained with Google's script.

DEVIATION: all start from random weights unless `--init` names a model. The authors' base and base-ext started from
Google's Chinese BERT (table in the README): --init FOLDER with bert-base-chinese.
"""

from collections.abc import Iterator

from maskwright.data.tokenizers.spec import WordPiece
from maskwright.data.words.spec import Words
from maskwright.pretext.masking import WholeWordMasking
from maskwright.pretext.objectives import MaskedLanguageModeling, NextSentencePrediction
from maskwright.recipes.optimization import Lamb, LengthPhase, Training
from maskwright.recipes.recipe import MaskSampling, Recipe
from maskwright.recipes.sizes import BASE, LARGE, MINI, SMALL, TINY, Size, at_size
from maskwright.recipes.systems import bert

PAPER = "Cui et al. 2019, arXiv:1906.08101"
GOOGLE = "Devlin et al. 2019, arXiv:1810.04805; github.com/google-research/bert, 31 May 2019"
NOT_PUBLISHED = "not published: BERT-wwm at the size of a small BERT"

# The tokenizer still splits Chinese into characters; the segmenter only determines which of them form a word.
#
# DEVIATION: the segmenter is jieba, which needs no model; the authors used LTP.
CHINESE_WORDS = Words(segmenter="rjieba", units="words")
ENGLISH_WORDS = Words()  # the tokenizer's words

MASKING = WholeWordMasking(
    # 15 % of the tokens; words beyond the budget are skipped (create_pretraining_data.py:376-398).
    rate=0.15,
    rounding="half_even",
    rate_relative_to="all",
)

# DEVIATION: the authors used 2560 sequences a step at length 128 and 384 at 512, in two runs, each with its own
# warmup. A recipe has one batch size, here the first run's, and one schedule. The two runs are
# --set "training={steps: 100000, warmup_steps: 10000, phases: [{max_length: 128}]}"
# --set "training={steps: 100000, warmup_steps: 10000, batch_sequences: 384, phases: [{max_length: 512}]}"
# the second with --init, the folder of the first. For the -ext models, the first run has --init too.
TRAINING = Training(
    steps=200_000,  # 100 k at each length
    batch_sequences=2560,
    phases=(LengthPhase(share=0.5, max_length=128), LengthPhase(share=0.5, max_length=512)),
    # Not verified: learning rate and warmup over 10 % of the steps are attributed to the report, which was not
    # available; the README gives neither.
    learning_rate=1e-4,
    warmup_steps=20_000,
    schedule="linear_jump",
    clip_norm=1.0,
    optimizer=Lamb(),
)

# 1 M steps at 128, 400 k at 512, on 5.4 instead of 0.4 billion words. As two runs:
# --set "training={steps: 1000000, warmup_steps: 100000, phases: [{max_length: 128}]}"
# --set "training={steps: 400000, warmup_steps: 40000, batch_sequences: 384, phases: [{max_length: 512}]}"
TRAINING_EXT = TRAINING.replace(
    steps=1_400_000,
    phases=(LengthPhase(share=5 / 7, max_length=128), LengthPhase(share=2 / 7, max_length=512)),
    warmup_steps=140_000,
)

SYSTEMS: tuple[tuple[str, Size, WordPiece, Words, Training, str, str], ...] = (
    # size                  shape  tokenizer      words          training       paper   summary
    ("tiny",                TINY,  bert.CHINESE,  CHINESE_WORDS, TRAINING,      PAPER,  NOT_PUBLISHED),
    ("mini",                MINI,  bert.CHINESE,  CHINESE_WORDS, TRAINING,      PAPER,  NOT_PUBLISHED),
    ("small",               SMALL, bert.CHINESE,  CHINESE_WORDS, TRAINING,      PAPER,  NOT_PUBLISHED),
    ("base",                BASE,  bert.CHINESE,  CHINESE_WORDS, TRAINING,      PAPER,  "Chinese, whole-word masking"),
    ("base-ext",            BASE,  bert.CHINESE,  CHINESE_WORDS, TRAINING_EXT,  PAPER,  "Chinese, trained longer"),
    ("base-english",        BASE,  bert.UNCASED,  ENGLISH_WORDS, bert.TRAINING, GOOGLE, "not published at this size"),
    ("large-english",       LARGE, bert.UNCASED,  ENGLISH_WORDS, bert.TRAINING, GOOGLE, "English, lowercased"),
    ("large-english-cased", LARGE, bert.CASED,    ENGLISH_WORDS, bert.TRAINING, GOOGLE, "English, cased"),
)  # fmt: skip


def recipes() -> Iterator[Recipe]:
    """Yield the Chinese models, small models with the same objectives, and Google's English models."""
    for name, size, tokenizer, words, training, paper, summary in SYSTEMS:
        yield Recipe(
            name=f"bert-wwm/{name}",
            summary=summary,
            paper=paper,
            family="bert",
            tokenizer=tokenizer,
            words=words,
            format=bert.FORMAT,
            masking=MASKING,
            # Each character separately, also within a word (ymcui/Chinese-BERT-wwm issue 33).
            replacement=bert.REPLACEMENT,
            masks=MaskSampling(copies=10),
            objectives=(MaskedLanguageModeling(), NextSentencePrediction()),
            encoder=at_size(bert.ENCODER, size),
            training=training,
        )
