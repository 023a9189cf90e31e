"""A vector a token, from saved files to vectors and scores, against sentence-transformers' MultiVectorEncoder.

To add a family: one row in `MODELS`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from sentence_transformers.multi_vector_encoder.modules import HierarchicalTokenPooling

from families.conftest import ONE_THREAD
from parity import Parity
from shoal.adapters import open_adapter
from shoal.adapters.base import MultiVectors, Scores, SparseVectors, Vectors
from shoal.catalog import resolve
from shoal.catalog.spec import ModelSpec
from shoal.errors import ContextLengthExceeded, InvalidRequest, UnsupportedOperation
from shoal.runtimes.registry import open_runtime
from shoal.types import EmbedOptions, Options, RerankOptions
from tiny_models import NASTY_TEXTS
from tiny_multivector import Side, TinyMultiVector, load_multivector, m3_outputs, token_vectors

Build = Callable[[TinyMultiVector], Path]
ATTENDED = (("strategy", "fixed"), ("length", 24), ("attend", True))
AT_LEAST = (("strategy", "min"), ("length", 20), ("token", "[SEP]"))
MODELS = {
    "bert": TinyMultiVector(),
    "bert-attended": TinyMultiVector(expansion=ATTENDED, knows_markers=False),
    "bert-at-least": TinyMultiVector(expansion=AT_LEAST, query_length=40),
    "bert-without-expansion": TinyMultiVector(expansion=None, query_length=16, document_length=None, skipped=""),
    "bert-both-sides-skip": TinyMultiVector(mask=(("skiplist_tasks", ("query", "document")),)),
    "xlm-roberta": TinyMultiVector("xlm-roberta"),
    "modernbert": TinyMultiVector("modernbert", num_layers=4),
    "modernbert-narrow": TinyMultiVector("modernbert", num_layers=4, config=(("local_attention", 8),)),
    "distilbert": TinyMultiVector("distilbert"),
    "mpnet": TinyMultiVector("mpnet"),
    "pylate": TinyMultiVector(form="pylate"),
    "pylate-modernbert": TinyMultiVector("modernbert", "pylate", stated=(("attend_to_expansion_tokens", True),)),
    "pylate-without-expansion": TinyMultiVector(
        form="pylate", stated=(("do_query_expansion", False), ("query_length", 20), ("model_type", "ColBERT"))
    ),
    "pylate-bare": TinyMultiVector(
        form="pylate", knows_markers=False, stated=(("skiplist_words", ...), ("document_length", None))
    ),
    "stanford": TinyMultiVector(form="stanford"),
    "stanford-attended": TinyMultiVector(
        form="stanford", stated=(("attend_to_mask_tokens", True), ("mask_punctuation", False), ("doc_maxlen", ...))
    ),
    "merging": TinyMultiVector(merging=(("pool_factor", 2.0), ("tasks", ("query", "document")))),
}
QUERY = "machine learning"
DOCUMENTS = [
    "Paris is the capital",
    "Machine learning models embed sentences into vectors, so that similar meanings lie close together. " * 20,
    "... ,,, ??? ;;; ... ,,,",
    "",
    "In 1969, 650 million people watched the first men walk on the moon; it cost $25.4 billion.",
]


class Served:
    """A model from its files to what a caller gets."""

    def __init__(self, directory: Path, runtime: str = "openvino") -> None:
        self.spec: ModelSpec = resolve(str(directory))
        self.adapter = open_adapter(self.spec)
        self.session = open_runtime(runtime).load(self.spec, ONE_THREAD)

    def finish(self, texts: list[str], options: Options, company: list[tuple[list[str], Options]] = ()) -> Any:  # type: ignore[assignment]
        """What the texts become, in one batch with texts of other requests."""
        self.adapter.check(options)
        runs = self.adapter.prepare(texts, options)
        others = [run for more, how in company for run in self.adapter.prepare(more, how)]
        raw = self.session.run(self.adapter.collate([*runs, *others]))
        return self.adapter.finish(first_items(raw, len(runs)), options, runs)

    def rows(self, texts: list[str], side: Side, *company: tuple[list[str], Options], **options: Any) -> list[Any]:
        """The vectors of each text."""
        wanted = EmbedOptions(outputs=("multivector",), input_type=side, **options)
        (finished,) = self.finish(texts, wanted, list(company))
        return split(finished)


def first_items(raw: dict[str, Any], count: int) -> dict[str, Any]:
    """The part of a batch's arrays that belongs to its first items."""
    kept = {}
    for name, array in raw.items():
        output, _, part = name.partition(".")
        ends = raw[f"{output}.lengths"][:count].sum() if part not in ("", "lengths") else count
        kept[name] = array[:ends]
    return kept


def split(finished: MultiVectors) -> list[npt.NDArray[Any]]:
    assert finished.lengths.sum() == len(finished.vectors.data)
    return np.split(finished.vectors.data, np.cumsum(finished.lengths)[:-1])


@pytest.mark.parametrize("runtime", ["openvino", "torch"])
@pytest.mark.parametrize("name", MODELS)
def test_a_multivector_model_equals_the_reference(
    name: str, runtime: str, tiny_multivector: Build, parity: Parity
) -> None:
    """C34: both sides, their markers, lengths and expansion; in a mixed batch, and alone."""
    recipe = MODELS[name]
    directory = tiny_multivector(recipe)
    served, judge = Served(directory, runtime), load_multivector(directory)
    assert served.spec.outputs == ("multivector",)
    assert served.spec.card.multivector_dimensions == judge.get_embedding_dimension()
    texts = [*DOCUMENTS, *NASTY_TEXTS[::2]]
    for side, other in (("query", "document"), ("document", "query")):
        expected = token_vectors(judge, texts, side)
        company = (texts[:7], EmbedOptions(outputs=("multivector",), input_type=other))
        together = served.rows(texts, side, company)
        alone = [served.rows([text], side)[0] for text in texts]
        for rows in (together, alone):
            assert [len(one) for one in rows] == [len(one) for one in expected], side
        joined = [np.concatenate(rows) for rows in (expected, together, alone)]
        parity.check(recipe.architecture, "multivector", runtime, *joined)
    queries, documents = token_vectors(judge, [QUERY], "query"), token_vectors(judge, texts, "document")
    expected_scores = judge.similarity(queries, documents)[0].numpy()
    (scores,) = served.finish(texts, RerankOptions(QUERY))
    single = [served.finish([text], RerankOptions(QUERY))[0].values[0] for text in texts]
    parity.check(recipe.architecture, "maxsim", runtime, expected_scores, scores.values, np.array(single))
    served.session.close()


def test_counts_of_vectors_are_what_the_files_say(tiny_multivector: Build) -> None:
    """C34: expansion to the fixed length, punctuation left out, nothing for padding, and a long text cut."""
    served = Served(tiny_multivector(MODELS["bert"]))
    assert [len(rows) for rows in served.rows([QUERY, "a", "the " * 90], "query")] == [32, 32, 32]
    lengths = [len(rows) for rows in served.rows(DOCUMENTS, "document")]
    assert lengths[1] <= 48
    assert lengths[2:4] == [3, 3], "marker and special tokens are all that is left"
    for rows in served.rows(DOCUMENTS, "document"):
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)


def test_texts_of_which_nothing_is_said_are_documents(tiny_multivector: Build) -> None:
    served = Served(tiny_multivector(MODELS["bert"]))
    (finished,) = served.finish(DOCUMENTS, EmbedOptions(outputs=("multivector",)))
    for unsaid, said in zip(split(finished), served.rows(DOCUMENTS, "document"), strict=True):
        np.testing.assert_array_equal(unsaid, said)


@pytest.mark.parametrize("factor", [1.0, 1.5, 3.0])
def test_vectors_are_merged_as_the_reference_merges(factor: float, tiny_multivector: Build) -> None:
    directory = tiny_multivector(MODELS["bert"])
    served, judge = Served(directory), load_multivector(directory)
    merging = HierarchicalTokenPooling(factor)
    for side in ("document", "query"):
        expected = token_vectors(judge, DOCUMENTS, side, token_pooling=merging)
        for own, reference in zip(served.rows(DOCUMENTS, side, pool_factor=factor), expected, strict=True):
            assert own.shape == reference.shape
            np.testing.assert_allclose(own, reference, atol=1e-4)


def test_the_mean_where_the_model_says_so(tiny_multivector: Build) -> None:
    directory = tiny_multivector(TinyMultiVector(similarity="meanmaxsim"))
    served, judge = Served(directory), load_multivector(directory)
    queries, documents = token_vectors(judge, [QUERY], "query"), token_vectors(judge, DOCUMENTS, "document")
    (scores,) = served.finish(DOCUMENTS, RerankOptions(QUERY))
    np.testing.assert_allclose(scores.values, judge.similarity(queries, documents)[0].numpy(), atol=1e-5)
    assert served.spec.rerank_method == "maxsim"


@pytest.mark.parametrize("dtype", ["float16", "int8", "binary"])
def test_numbers_are_stored_as_dense_ones_are(dtype: Any, tiny_multivector: Build) -> None:
    served = Served(tiny_multivector(MODELS["bert"]))
    (whole,) = served.finish(DOCUMENTS, EmbedOptions(outputs=("multivector",)))
    (stored,) = served.finish(DOCUMENTS, EmbedOptions(outputs=("multivector",), dtype=dtype))
    assert stored.lengths.tolist() == whole.lengths.tolist()
    vectors: Vectors = stored.vectors
    numbers = vectors.data
    if dtype == "binary":
        numbers = np.unpackbits(numbers, axis=1, count=16).astype(np.int8) * 2 - 1
    scales = 1 if vectors.scales is None else vectors.scales[:, None]
    tolerance = {"float16": 1e-3, "int8": 0.01, "binary": 0.7}[dtype]
    np.testing.assert_allclose(numbers * scales, whole.vectors.data, atol=tolerance)


def test_what_cannot_be_is_refused_by_name(tiny_multivector: Build, tiny_model: Callable[..., Path]) -> None:
    served = Served(tiny_multivector(MODELS["bert"]))
    with pytest.raises(UnsupportedOperation, match="has no output dense; it has: multivector") as refused:
        served.adapter.check(EmbedOptions())
    assert refused.value.param == "outputs"
    with pytest.raises(InvalidRequest, match="dimensions") as cut:
        served.adapter.check(EmbedOptions(outputs=("multivector",), dimensions=8))
    assert cut.value.param == "dimensions"
    with pytest.raises(ContextLengthExceeded, match=r"query has 92 tokens.* takes 32") as long:
        served.adapter.prepare(["a"], RerankOptions("the " * 89))
    assert long.value.param == "query"
    dense = open_adapter(resolve(str(tiny_model())))
    with pytest.raises(UnsupportedOperation, match="has no output multivector; it has: dense"):
        dense.check(EmbedOptions(outputs=("multivector",)))
    with pytest.raises(InvalidRequest, match="pool_factor"):
        dense.check(EmbedOptions(pool_factor=2.0))


@pytest.mark.parametrize("runtime", ["openvino", "torch"])
def test_three_heads_in_one_forward_equal_the_published_formulas(runtime: str, tiny_m3: Path, parity: Parity) -> None:
    """C33: bge-m3's weights of words, its vectors of tokens and its dense vector, its files as torch saved them."""
    assert not list(tiny_m3.glob("model.safetensors"))
    served = Served(tiny_m3, runtime)
    assert served.spec.outputs == ("dense", "sparse", "multivector")
    assert set(served.session.facts.outputs) == {"dense", "sparse", "multivector"}
    texts = ["what is bge m3? what is it", *NASTY_TEXTS]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        weights, vectors, dense = m3_outputs(tiny_m3, texts)
    options = EmbedOptions(outputs=("dense", "sparse", "multivector"))
    together = served.finish(texts, options)
    alone = [served.finish([text], options) for text in texts]
    family = "xlm-roberta (bge-m3)"
    parity.check(family, "dense", runtime, dense, together[0].data, np.concatenate([one[0].data for one in alone]))
    rows = [np.concatenate([one[2].vectors.data for one in alone]), together[2].vectors.data]
    parity.check(family, "multivector", runtime, np.concatenate(vectors), *rows, reference="transformers")
    assert together[2].lengths.tolist() == [len(one) for one in vectors]
    assert any(weights), "a weight or two must be above zero"
    size = served.spec.vocabulary_size
    served_weights = entries(together[1]), [entries(one[1])[0] for one in alone]
    assert [list(words) for words in served_weights[0]] == [sorted(words) for words in weights]
    matrices = [written_out(rows, size) for rows in (weights, *served_weights)]
    parity.check(family, "sparse", runtime, *matrices, reference="transformers")


def test_a_ranking_by_m3_is_the_mean_of_the_best_products(tiny_m3: Path) -> None:
    served = Served(tiny_m3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        _, (query, *documents), _ = m3_outputs(tiny_m3, [QUERY, *DOCUMENTS])
    expected = [(query @ document.T).max(axis=1).mean() for document in documents]
    scores: Scores = served.finish(DOCUMENTS, RerankOptions(QUERY))[0]
    np.testing.assert_allclose(scores.values, expected, atol=1e-4)


def entries(vectors: SparseVectors) -> list[dict[int, float]]:
    """Each vector as words and weights."""
    ends = np.cumsum(vectors.lengths)
    return [
        dict(zip(vectors.indices[end - n : end].tolist(), vectors.values[end - n : end].tolist(), strict=True))
        for end, n in zip(ends, vectors.lengths, strict=True)
    ]


def written_out(rows: list[dict[int, float]], size: int) -> npt.NDArray[np.float32]:
    whole = np.zeros((len(rows), size), np.float32)
    for row, words in zip(whole, rows, strict=True):
        row[list(words)] = list(words.values())
    return whole
