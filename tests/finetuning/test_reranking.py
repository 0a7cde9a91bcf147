"""Reranking: pairs, triplets and labels train a CrossEncoder, whose rankings are scored as elsewhere."""

import itertools
import warnings
from importlib.util import find_spec

import numpy as np
import pytest

import maskwright
from maskwright.core.errors import DataError
from maskwright.finetuning import negatives
from maskwright.finetuning.examples import ExampleFile, TextExample
from maskwright.finetuning.labeled import LabeledRequest, hold_out, read_for_model, read_labeled
from maskwright.finetuning.metrics.scores import ranking_scores
from maskwright.finetuning.negatives import NegativeMiner
from maskwright.finetuning.readers import read_examples
from maskwright.finetuning.readers.options import ReadOptions, to_keep
from maskwright.finetuning.tasks.reranking import Reranking
from maskwright.reporting.reporter import Reporter
from maskwright.training.start.existing import open_existing

needs_library = pytest.mark.skipif(
    not all(map(find_spec, ("sentence_transformers", "datasets"))), reason="needs sentence-transformers and datasets"
)
FAST = ("epochs=4", "batch_size=8", "learning_rate=0.003", "max_length=24")
QUERIES = [f"{article} {noun}" for article, noun in itertools.product(("the", "a", "we love the"), ("cat", "dog"))]
PAIRS = [
    {"query": query, "positive": f"{verb} {query.split()[-1]} {end}"}
    for query, verb, end in itertools.product(QUERIES, ("running", "sat"), (".", "!", ","))
]


def _finetune(model, out, train, **options):
    return maskwright.finetune(
        model, task="reranking", train=train, out=out, set=FAST, device="cpu", reporter=Reporter(), **options
    )


@needs_library
def test_pairs_get_negatives_and_the_folder_is_a_cross_encoder(bert_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("MASKWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(negatives, "MARGIN", None)  # All vectors of a random model are similar.
    with warnings.catch_warnings(action="ignore"):
        from sentence_transformers import CrossEncoder
    out = tmp_path / "out"
    results = _finetune(bert_folder, out, PAIRS, dev=PAIRS).results
    assert results.main_metric == "ndcg@10"
    assert results.data["train"]["examples"] > len(PAIRS)
    assert list(results.baselines) == ["TF-IDF cosine", "frozen vectors cosine"]
    assert results.best.dev["ndcg@10"] > results.baselines["frozen vectors cosine"]["dev"]["ndcg@10"]
    pairs = [(row["query"], row["positive"]) for row in PAIRS[::7]]
    scores = [prediction.value for prediction in maskwright.predict(out, pairs, device="cpu", reporter=Reporter())]
    np.testing.assert_allclose(CrossEncoder(str(out), device="cpu").predict(pairs), scores, atol=1e-5)
    monkeypatch.setattr(NegativeMiner, "_mine", lambda *_, **__: pytest.fail("they are in the cache"))
    assert _finetune(bert_folder, out, PAIRS, dev=PAIRS).results == results
    documents = [row["positive"] for row in PAIRS[:12]]
    labeled = [
        {"a": query, "b": text, "label": float(text.split()[1] in query)}
        for query, text in itertools.product(QUERIES, documents)
    ]
    again = maskwright.evaluate(
        out, file=labeled, text="a", text2="b", label="label", device="cpu", reporter=Reporter()
    )
    assert again.metrics["map"] > 0.5
    with pytest.raises(DataError, match="single texts"):
        maskwright.predict(out, "the cat", device="cpu", reporter=Reporter())


def test_a_cross_encoder_keeps_its_head(bert_folder, tmp_path):
    triplets = [{**row, "negative": "the tree"} for row in PAIRS]
    _finetune(bert_folder, tmp_path / "first", triplets)
    model = maskwright.finetuning.model.fine_tuned.build(tmp_path / "first", Reranking(), seed=5)
    saved = maskwright.finetuning.model.fine_tuned.load(tmp_path / "first")
    assert (model.head.output.weight == saved.head.output.weight).all()


@needs_library
def test_negatives_are_mined_by_one_rank_and_again_for_another_pooling(bert_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("MASKWRIGHT_CACHE", str(tmp_path / "cache"))
    rows, calls = [["q", "p", 1], ["q", "n", 0]], []
    monkeypatch.setattr(NegativeMiner, "_mine", lambda *_: calls.append(1) or rows)
    file = ExampleFile(name="f", examples=(TextExample(key="1", texts=("q", "p"), label=None),))
    for pooling in ("mean", "first", "first"):
        folder = tmp_path / pooling
        if not folder.exists():
            maskwright.export(bert_folder, to="sentence-transformers", out=folder, pooling=pooling)
        miner = NegativeMiner(open_existing(str(folder)), "cpu", Reporter())
        assert [each.label for each in miner.add_negatives("train", file).examples] == [1, 0]
    assert len(calls) == 2
    monkeypatch.setattr(negatives, "on_rank_zero", lambda work: rows)  # As on another rank.
    miner.add_negatives("dev", file)
    assert len(calls) == 2


TRIPLETS = [{"query": "q", "positive": "p", "negative": "n"}]
LABELED = [{"query": "q", "document": "p", "label": 1.0}, {"query": "q", "document": "n", "label": 0.0}]
RELEVANT = [{"query": "q", "positive": "p"}]


@pytest.mark.parametrize(("trained", "rows"), [*itertools.permutations((TRIPLETS, LABELED, RELEVANT), 2)])
def test_other_files_may_have_other_rows(trained, rows):
    options = ReadOptions(labels="if_there", negative=("negative",) if trained is TRIPLETS else ())
    read_as = to_keep(options, read_examples(trained, "reranking", options).read_as)
    examples = read_for_model(rows, "reranking", options, read_as).examples
    expected = [(("q", "p"), 1), (("q", "n"), 0)] if rows is not RELEVANT else [(("q", "p"), None)]
    assert [(each.texts, each.label) for each in examples] == expected


def test_a_document_that_is_relevant_in_one_triplet_is_no_negative():
    rows = [{"query": "q", "positive": "a", "negative": "b"}, {"query": "q", "positive": "b", "negative": "c"}]
    examples = read_examples(rows, "reranking").examples
    assert [(each.texts[1], each.label) for each in examples] == [("a", 1), ("b", 1), ("c", 0)]


def test_training_pairs_need_no_rankings():
    def read(train, dev):
        files = {"train": train, "dev": dev}
        return read_labeled(LabeledRequest.of(task="reranking", files=files, columns={}), {}, Reporter())

    rows = [{"query": f"the {n}", "document": "cat", "label": n % 2} for n in range(16)]
    ranked = [{"query": "the", "document": f"cat {n}", "label": n} for n in range(2)]
    assert len(read(rows, ranked).parts["train"].examples) == 16
    with pytest.raises(DataError, match="nothing to learn"):
        read(rows[::2], ranked)
    with pytest.raises(DataError, match="nothing to rank"):
        read(ranked, rows)


def test_equal_scores_are_no_ranking():
    scores = ranking_scores([([True, False, False, False], [0.5] * 4)])
    assert scores["mrr@10"] == scores["map"] == 1 / 4
    assert scores == ranking_scores([([False, False, True, False], [0.5] * 4)])


def test_triplets_are_distinct_labeled_pairs():
    rows = [{"query": "q", "positive": "p", "negative": n} for n in ("n", "m")]
    examples = read_examples(rows, "reranking").examples
    assert [(each.texts, each.label) for each in examples] == [(("q", "p"), 1), (("q", "n"), 0), (("q", "m"), 0)]
    assert len({each.key for each in examples}) == 3


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([{"text": "the cat", "label": 1.0}], "needs a query and a document"),
        ([{"query": f"the {n}", "document": "cat", "label": n % 2} for n in range(9)], "nothing to rank"),
        ([{"query": "the", "document": f"cat {n}", "label": n} for n in range(9)], "relevance is 2.0"),
    ],
)
def test_what_cannot_be_ranked_is_refused(rows, problem, bert_folder, tmp_path):
    with pytest.raises(DataError, match=problem):
        _finetune(bert_folder, tmp_path / "out", rows, dev=rows)


def test_held_out_queries_are_not_trained_on():
    examples = [
        TextExample(key=f"{query}{number}", texts=(f"query {query}", f"text {number}"), label=None)
        for query, number in itertools.product(range(30), range(3))
    ]
    train, dev = hold_out(examples, "f", by_query=True)
    assert not {example.texts[0] for example in train} & {example.texts[0] for example in dev}
    assert len(dev) == 9


@needs_library
def test_rankings_are_scored_as_by_sentence_transformers():
    from sentence_transformers.cross_encoder.evaluation import CrossEncoderRerankingEvaluator

    generator = np.random.default_rng(0)
    queries = [(generator.random(n) < 0.3, generator.random(n)) for n in (3, 12, 30, 30)]
    queries[0][0][:] = (True, False, False)
    evaluator = CrossEncoderRerankingEvaluator([{"query": "q", "positive": ["a"], "negative": ["b"]}])
    expected = np.mean([evaluator.compute_metrics(*each) for each in queries], axis=0)
    scores = ranking_scores([*queries, (np.array([True, True]), np.array([0.1, 0.2]))])
    np.testing.assert_allclose([scores[name] for name in ("mrr@10", "ndcg@10", "map")], expected)
