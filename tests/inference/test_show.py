"""Preview: what is drawn is what training would do, every character of it."""

import io
import itertools
import json
import shutil

import pytest
import torch
from rich.console import Console

from maskwright.core.errors import DataError, RecipeError
from maskwright.core.storage.files import write_json
from maskwright.data.tokenizers.backends import WORDPIECE_NAMES, bert_normalizer, wordpiece_backend
from maskwright.data.tokenizers.spec import ByteBPE, Unigram, WordPiece
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.data.tokenizers.training import train_byte_bpe, train_unigram, train_wordpiece
from maskwright.data.words.spec import Words
from maskwright.inference.show import sentences_of_documents, show
from maskwright.inference.show_output import render
from maskwright.inference.texts import read_source
from maskwright.recipes import catalog
from maskwright.training.runs.checkpoint import save_models
from maskwright.training.steps.model import build_model
from recording import Recorder

ENGLISH = (
    "The old clock struck nine. Nobody in the house had noticed it before. "
    '"Is it not late?" asked Ann, and she closed the book.\n\n'
    "Rain fell over the harbour. The boats stayed where they were, and the sailors played cards until noon."
)
CHINESE = "模型预测下一个词。她说：“今天很冷。”我们都笑了。\n\n昨天晚上下了一场大雨。街上到处是积水。"


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory):
    """Folders with a small tokenizer of each kind that knows both texts."""
    texts = [ENGLISH, CHINESE] * 5
    folders = {}
    for kind, tokenizer in {
        "wordpiece": train_wordpiece(WordPiece(vocab_size=400), texts, texts),
        "byte_bpe": train_byte_bpe(ByteBPE(vocab_size=400), texts),
        "unigram": train_unigram(Unigram(vocab_size=400), texts, texts),
    }.items():
        folders[kind] = tmp_path_factory.mktemp(kind)
        tokenizer.save(folders[kind])
    return folders


def shown(recipe, tokenizers, text=ENGLISH, **options):
    kind = catalog.resolve(recipe).tokenizer.kind
    return show(recipe, text, tokenizer=tokenizers[kind], **options)


def drawn(preview):
    console = Console(width=4000, no_color=True, record=True, file=io.StringIO())
    console.print(render(preview))
    return console.export_text()


def of_each_task():
    """One recipe of each format, masking, replacement, list of objectives and kind of words."""
    recipes = map(catalog.get, catalog.names())
    return {(one.format, one.masking, one.replacement, one.objectives, one.words): one.name for one in recipes}.values()


@pytest.mark.parametrize("name", of_each_task())
def test_every_recipe_can_be_shown_and_drawn(name, tokenizers):
    preview = shown(name, tokenizers, text=ENGLISH + "\n\n" + CHINESE, max_sequences=20)
    assert preview.num_sequences == len(preview.sequences) > 0
    text = drawn(preview)
    assert name in text
    for sequence in preview.sequences:
        assert all(f"{token.seen}{{{token.original}}}" in text for token in sequence.tokens if token.change)
    json.dumps(preview.to_json())


@pytest.mark.parametrize("name", ["bert/tiny", "roberta/tiny"])
def test_tokens_say_what_happened_to_them(name, tokenizers):
    for sequence in shown(name, tokenizers).sequences:
        for token in sequence.tokens:
            if token.change is None:
                assert token.unit is None
                assert token.seen_id == token.original_id
            elif token.change == "masked":
                assert token.seen in ("[MASK]", "<mask>")
            else:
                assert (token.seen_id == token.original_id) == (token.change == "kept")
        units = [token.unit for token in sequence.tokens if token.unit is not None]
        assert sorted(set(units)) == list(range(max(units) + 1))


def test_originals_are_the_text_that_was_given(tokenizers):
    preview = shown("roberta/tiny", tokenizers)
    [sequence] = preview.sequences
    words = "".join(token.original for token in sequence.tokens if not token.special)
    assert words == "".join(ENGLISH.split())
    assert sequence.tokens[0].seen_id == sequence.tokens[0].original_id
    assert [token.original for token in sequence.tokens if token.special] == ["<s>", "</s>", "</s>"]


def test_seed_and_epoch_determine_what_is_shown_and_static_masks_return(tokenizers):
    def sequences(recipe, epoch):
        return shown(recipe, tokenizers, epoch=epoch).sequences

    assert shown("bert/tiny", tokenizers) == shown("bert/tiny", tokenizers)
    assert shown("bert/tiny", tokenizers) != shown("bert/tiny", tokenizers, seed=1)
    assert sequences("bert/tiny", 0) == sequences("bert/tiny", 10) != sequences("bert/tiny", 1)
    assert sequences("roberta/tiny", 0) != sequences("roberta/tiny", 10)


@pytest.mark.parametrize(
    ("name", "fields", "words"),
    [
        ("bert/tiny", [], ("second text: the next one (label 0)", "second text: a random one (label 1)")),
        ("albert/tiny", [], ("the two texts in order (label 0)", "the two texts swapped (label 1)")),
        ("bert/tiny", ["format.second=next", "objectives=[mlm]"], ("", "")),
    ],
)
def test_pairs_are_labeled_in_words(name, fields, words, tokenizers):
    preview = shown(name, tokenizers, text="\n\n".join([ENGLISH] * 6), set=fields)
    labels = {sequence.pair_label for sequence in preview.sequences}
    assert labels - {-1} == ({0, 1} if words[0] else set())
    assert [preview.pair_words(label) for label in (0, 1)] == list(words)
    assert bool(preview.pair_words(-1)) == bool(words[0])


def test_a_single_sentence_is_shown_as_no_pair(tokenizers):
    assert "no pair" in drawn(shown("albert/tiny", tokenizers, text="Nothing gold can stay"))
    assert "no pair" not in drawn(shown("roberta/tiny", tokenizers, text="Nothing gold can stay"))


def test_boundaries_and_positions_of_spans_are_shown(tokenizers):
    preview = shown(
        "spanbert/tiny", tokenizers, set=["masking.rate=0.3", "objectives=[mlm, {kind: sbo, max_tokens: 3}]"]
    )
    text, predicted = drawn(preview), 0
    for sequence in preview.sequences:
        for span in sequence.spans:
            first, last = span.left + 1, span.right - 1
            assert all(sequence.tokens[index].unit is not None for index in range(first, last + 1))
            for side in (span.left, span.right):
                assert sequence.tokens[side].unit is None
                assert not sequence.tokens[side].special
            assert span.targets == tuple((index, index - span.left) for index in range(first, min(last, first + 2) + 1))
            assert f"{sequence.tokens[span.left].original} ... {sequence.tokens[span.right].original} predict" in text
            predicted += 1
    assert predicted > 2
    assert shown("bert/tiny", tokenizers).sequences[0].spans is None


def test_what_a_generator_samples_is_labeled_as_replaced_or_original(tokenizers):
    preview = shown("electra/tiny", tokenizers, set=["masking.rate=0.5"])
    tokens = [token for sequence in preview.sequences for token in sequence.tokens]
    for token in tokens:
        assert (token.sampled_id is None) == (token.unit is None)
        assert token.is_replaced == (token.sampled_id not in (None, token.original_id))
    # From unigram frequencies some samples are right by chance; every one is a token of the text.
    assert {token.sampled_id for token in tokens} - {None} <= {token.original_id for token in tokens}
    for sequence in preview.sequences:
        replaced = sum(token.is_replaced for token in sequence.tokens)
        assert f"{replaced} replaced, {len(sequence.tokens) - replaced} original" in drawn(preview)
    for fields in ("objectives=[mlm, replace_mlm]", "objectives=[mlm, {kind: rtd, loss_at: selected}]"):
        for token in shown("electra/tiny", tokenizers, set=[fields]).sequences[0].tokens:
            assert (token.is_replaced is not None) == ("rtd" in fields and token.unit is not None)


def test_a_runs_own_generator_is_sampled(tokenizers, tmp_path):
    recipe = catalog.resolve("electra/tiny", ["masking.rate=0.5"])
    folder = tmp_path / "run"
    shutil.copytree(tokenizers["wordpiece"], folder)
    shutil.copytree(tokenizers["wordpiece"], folder / "generator")
    write_json(folder / "recipe.json", recipe.model_dump(mode="json"))
    special = Tokenizer.from_folder(folder).special_tokens
    model = build_model(recipe, special.vocab_size)
    model.initialize(0)
    certain = 7
    with torch.no_grad():
        model.heads["mlm"].bias[certain] = 100.0
    save_models(folder, recipe, model, special)
    preview = show(str(folder), ENGLISH)
    assert any(f"the generator of {folder}" in note for note in preview.notes)
    sampled = {token.sampled_id for sequence in preview.sequences for token in sequence.tokens}
    assert sampled == {None, certain}


def test_stages_of_masking_are_shown_one_at_a_time(tokenizers, tmp_path):
    names = tmp_path / "names.txt"
    names.write_text("old clock\nclosed the book\n", encoding="utf-8")
    fields = [f"words.phrases=[{names}]", f"words.entities=[{names}]", "words.segmenter=none", "masking.rate=0.9"]

    def units(**options):
        preview = shown("ernie/tiny", tokenizers, set=fields, **options)
        [note] = [note for note in preview.notes if "stages of training" in note]
        grouped = {}
        for sequence in preview.sequences:
            for token in sequence.tokens:
                if token.unit is not None:
                    grouped.setdefault((id(sequence), token.unit), []).append(token.original)
        return preview, note, list(grouped.values())

    first, note, basic = units(stage=1)
    assert (first.stage, "stage 1, basic units (33% of training)" in note) == (1, True)
    words = {tuple(unit) for unit in basic}
    last, note, entities = units()
    assert (last.stage, "stage 3, entities" in note) == (3, True)
    assert units(stage=3)[0] == last != first
    assert json.loads(json.dumps(last.to_json()))["stage"] == 3
    # A name that is one unit in the last stage is several in the first.
    whole = max(entities, key=len)
    assert tuple(whole) not in words
    with pytest.raises(RecipeError, match=r"no stage 4 of masking.*1 \(basic units\), 2 \(phrases\), 3 \(entities\)"):
        units(stage=4)
    with pytest.raises(RecipeError, match=r"'bert/tiny' has no stage 2.*1, all of training"):
        shown("bert/tiny", tokenizers, stage=2)
    assert shown("bert/tiny", tokenizers).stage == 1


def test_words_of_a_unit_and_pieces_of_a_word_are_joined(tokenizers):
    preview = shown("spanbert/tiny", tokenizers, set=["masking.rate=0.6", "masking.geometric_p=0.05"])
    tied = sum(
        token.begins_word and token.unit is not None and token.unit == before.unit
        for sequence in preview.sequences
        for before, token in itertools.pairwise(sequence.tokens)
    )
    legend = 1
    assert tied > 0
    assert drawn(preview).count("‿") == tied + legend
    for name, is_marked in (("bert/tiny", True), ("roberta/tiny", False)):
        preview = shown(name, tokenizers, text="Unthinkable harbourings. So they were, everlastingly.")
        pieces = [token for sequence in preview.sequences for token in sequence.tokens if not token.begins_word]
        joints = sum(not token.seen.startswith("##") for token in pieces)
        assert drawn(preview).count("·") == joints + legend
        assert (joints < len(pieces)) == is_marked


@pytest.mark.parametrize(
    ("name", "options", "note"),
    [
        ("spanbert/tiny", {}, "only this text is counted"),
        ("distilbert/tiny", {}, "only this text is counted"),
        ("bert/tiny", {}, None),
        ("bert/tiny", {"text": "One. Two. Three."}, "with a single document"),
        ("roberta/tiny", {"text": "One. Two. Three."}, None),
        ("electra/tiny", {}, "this is what the generator sees"),
        ("electra/tiny", {}, "sampled from unigram frequencies"),
        ("electra/tiny", {}, "learns by replaced token detection"),
        ("electra/tiny", {"set": ("objectives=[mlm, replace_mlm]",)}, "learns by Replace MLM"),
    ],
)
def test_remarks_are_made_where_they_matter(name, options, note, tokenizers):
    notes = [each for each in shown(name, tokenizers, **options).notes if not each.startswith("of the ")]
    assert bool(notes) == (note is not None)
    assert note is None or any(note in each for each in notes)


def test_a_run_is_shown_with_its_own_tokenizer_and_another_kind_of_tokenizer_is_remarked_on(tokenizers, tmp_path):
    preview = show("bert/tiny", ENGLISH, tokenizer=tokenizers["byte_bpe"])
    assert "byte_bpe" in preview.notes[0]
    assert preview.sequences[0].tokens[0].seen == "<s>"
    run = tmp_path / "run"
    shutil.copytree(tokenizers["wordpiece"], run)
    write_json(run / "recipe.json", catalog.resolve("bert/tiny").model_dump(mode="json"))
    assert show(str(run), ENGLISH).tokenizer.startswith(str(run))
    assert show(str(run), ENGLISH).sequences == shown("bert/tiny", tokenizers).sequences


def test_number_of_sequences_is_limited(tokenizers):
    preview = shown("bert/tiny", tokenizers, text="\n\n".join([ENGLISH] * 6), max_sequences=2)
    assert len(preview.sequences) == 2
    assert preview.num_sequences > 2
    assert f"and {preview.num_sequences - 2} more" in drawn(preview)


def test_sentences_keep_all_text():
    documents = sentences_of_documents("One.  Two.\r\n\r\n\r\nThree, four.\nFive.\n\n \n")
    assert documents == [["One.", " Two."], ["Three, four.", " Five."]]


def test_small_tokenizer_contains_every_character(tmp_path, monkeypatch):
    from maskwright.inference import small_tokenizer as tokenizer

    documents = ["Return the sum of two numbers and tell no one."] * 30_000
    monkeypatch.setattr(tokenizer, "docstring_documents", lambda max_bytes, workers: iter(documents))
    monkeypatch.setattr(tokenizer, "docstrings_fingerprint", lambda: "test")
    text = "Crème brûlée 字 Ω ☃."
    recorder = Recorder()
    first = tokenizer.small_tokenizer(WordPiece(lowercase=False), text, cache=tmp_path, progress=recorder.stage)
    assert recorder.progress == [
        "reading docstrings (documents) 0 of None",
        "reading docstrings (documents) 30000 of 30000",
        "training a small vocabulary (texts) 0 of 30001",
        "training a small vocabulary (texts) 30001 of 30001",
    ]
    assert first.special_tokens.unk not in first.encode(text).ids
    monkeypatch.setattr(tokenizer, "train", None)
    again = tokenizer.small_tokenizer(WordPiece(lowercase=False), text, cache=tmp_path)
    assert again.fingerprint == first.fingerprint


def test_source_is_a_text_or_a_file(tmp_path):
    file = tmp_path / "x.txt"
    file.write_bytes("\ufeffÄ字".encode())
    assert read_source("x", None) == "x"
    assert read_source(None, file) == "Ä字"
    for text, path in ((None, None), ("x", file)):
        with pytest.raises(DataError, match="either as --text or as --text-file"):
            read_source(text, path)
    with pytest.raises(DataError, match=r"cannot read .*missing"):
        read_source(None, tmp_path / "missing")
    file.write_bytes(b"ab\xff")
    with pytest.raises(DataError, match=r"not UTF-8 text \(byte 2\)"):
        read_source(None, file)


def test_shown_text_is_cut_into_words_as_a_corpus_would_be_and_phrases_of_a_corpus_are_noted(tmp_path):
    text = "使用语言模型来预测下一个词的概率。"
    vocabulary = {token: number for number, token in enumerate([*WORDPIECE_NAMES, *sorted(set(text))])}
    Tokenizer(wordpiece_backend(vocabulary, normalizer=bert_normalizer(lowercase=True)), WORDPIECE_NAMES).save(tmp_path)

    def words_and_notes(**words):
        recipe = catalog.resolve("bert/tiny").replace(words=Words(**words))
        preview = show(recipe, text, tokenizer=tmp_path)
        results = []
        for token in preview.sequences[0].tokens:
            results += [""] * token.begins_word
            results[-1] += token.original
        return set(results), any("need a corpus" in note for note in preview.notes)

    assert {"使", "用"} <= words_and_notes()[0]
    for phrases, is_noted in ((), False), (("collocations",), True), (("segmenter",), False):
        words, noted = words_and_notes(segmenter="rjieba", phrases=phrases)
        assert noted == is_noted
        assert {"使用", "语言", "模型", "概率"} <= words
