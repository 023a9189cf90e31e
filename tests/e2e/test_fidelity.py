"""Vectors through the server equal sentence-transformers' on the same files: alone, in company, in any order."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import shoal
from e2e.conftest import TINY, Fleet, cosines
from e2e.running import MODEL, assert_alive
from tiny_models import NASTY_TEXTS, encode_reference

SHARED = Path(__file__).parents[3] / "shared" / "data"
WORDS = (
    "boundary layer flow over a flat plate at high speed heats the wing while pressure waves form near the body and "
    "the queue of small requests waits for a worker with room Joyeux Noël Käufer 東京 42 3.14 e-mail"
).split()


def texts_of(num_texts: int, longest: int, seed: int) -> list[str]:
    """Distinct texts of 1 to `longest` words."""
    chooser = random.Random(seed)
    return [" ".join(chooser.choices(WORDS, k=chooser.randint(1, longest))) + f" {i}" for i in range(num_texts)]


@pytest.fixture(scope="module")
def mixed_texts() -> list[str]:
    return [*texts_of(160, 60, seed=1), *texts_of(40, 600, seed=2)]


def test_demo_model_equals_the_reference_alone_and_in_company(
    fleet: Fleet, reference: Callable, mixed_texts: list[str]
) -> None:
    expected = encode_reference(reference(fleet.directories[MODEL]), mixed_texts)
    together = fleet.embed(MODEL, mixed_texts)
    with ThreadPoolExecutor(8) as pool:
        alone = np.concatenate(list(pool.map(lambda text: fleet.embed(MODEL, text), mixed_texts)))
    for vectors in (together, alone):
        print(f"worst cosine {cosines(vectors, expected).min():.8f}, difference {np.abs(vectors - expected).max():.2e}")
        assert precision(fleet) == "float32" or cosines(vectors, expected).min() >= 0.999
        assert precision(fleet) != "float32" or cosines(vectors, expected).min() >= 0.99999
        assert precision(fleet) != "float32" or np.abs(vectors - expected).max() < 1e-4


def precision(fleet: Fleet) -> str:
    """What the runtime chose for this CPU."""
    with shoal.Client(fleet.url) as client:
        return next(model for model in client.models() if model.id == MODEL).loaded[0].precision


@pytest.mark.parametrize("name", TINY)
def test_every_family_equals_the_reference(fleet: Fleet, reference: Callable, name: str) -> None:
    """C2, C3: whatever the pooling and the modules behind it."""
    texts = [*NASTY_TEXTS, "mountains", "joyeux noel", " ".join(WORDS * 10)]
    vectors = fleet.embed(name, texts)
    expected = encode_reference(reference(fleet.directories[name]), texts)
    assert vectors.shape == expected.shape
    assert cosines(vectors, expected).min() >= (0.9999 if precision(fleet) == "float32" else 0.999)


@pytest.mark.parametrize("name", [MODEL, "tiny-cls", "tiny-last"])
def test_neighbours_do_not_matter(fleet: Fleet, name: str) -> None:
    """C5."""
    short, middle, long = "a cat sat here", " ".join(WORDS)[:200], " ".join(WORDS * 20)
    alone = np.stack([fleet.embed(name, text)[0] for text in (short, middle, long)])
    forward = fleet.embed(name, [short, middle, long])
    backward = fleet.embed(name, [long, middle, short])[::-1]
    crowd = fleet.embed(name, [short, *[long] * 31])
    assert cosines(alone, forward).min() > 0.9999
    assert cosines(alone, backward).min() > 0.9999
    assert cosines(alone[:1], crowd[:1]).min() > 0.9999
    assert cosines(alone[[2] * 31], crowd[1:]).min() > 0.9999


def test_order_survives_batches(fleet: Fleet) -> None:
    """C6."""
    texts = [f"sentence number {i} " + " ".join(WORDS[: i % len(WORDS)]) for i in range(200)]
    together = fleet.embed(MODEL, texts)
    with ThreadPoolExecutor(8) as pool:
        alone = np.concatenate(list(pool.map(lambda text: fleet.embed(MODEL, text), texts)))
    assert cosines(together, alone).min() > 0.9999
    assert np.array_equal(np.argmax(together @ alone.T, axis=1), np.arange(200))


def test_a_thousand_texts_keep_the_stated_tolerance(fleet: Fleet, reference: Callable) -> None:
    """C9: exact erf, not the tanh form; printed by `pytest -s`."""
    texts = texts_of(1000, 24, seed=9)
    expected = reference(fleet.directories["tiny-mean"]).encode(texts, show_progress_bar=False)
    vectors = fleet.embed("tiny-mean", texts)
    difference = float(np.abs(vectors - expected).max())
    print(
        f"{precision(fleet)}: max abs difference {difference:.2e}, worst cosine {cosines(vectors, expected).min():.8f}"
    )
    if precision(fleet) == "float32":
        assert difference < 1e-4
    assert cosines(vectors, expected).min() >= 0.999


@pytest.mark.parametrize(
    "text", [" cat", "cat ", "cat\n", "Cat", "cat", "[SEP]", "[PAD] x", "a </s> b", "<|endoftext|>"]
)
@pytest.mark.parametrize("name", ["tiny-mean", "tiny-cls", "tiny-dense"])
def test_text_is_not_altered(fleet: Fleet, reference: Callable, name: str, text: str) -> None:
    """C15: blanks, case and literal special tokens are what the model's own tokenizer makes of them."""
    expected = encode_reference(reference(fleet.directories[name]), [text])
    alone, together = fleet.embed(name, text), fleet.embed(name, ["other text", text])[1:]
    assert cosines(alone, expected).min() > 0.9999
    assert cosines(together, expected).min() > 0.9999


def test_prompts(fleet: Fleet, reference: Callable) -> None:
    """C4: by name, by hand, unknown, and a pooling that leaves the prompt out."""
    text = "where is the sea"
    named = fleet.embed("tiny-prompts", text, prompt_name="query")
    expected = encode_reference(reference(fleet.directories["tiny-prompts"]), [text], prompt_name="query")
    assert cosines(named, expected).min() > 0.9999
    assert cosines(named, fleet.embed("tiny-prompts", "query: " + text)).max() < 0.9999  # include_prompt is false here
    refused = fleet.post("tiny-prompts", text, prompt_name="qeury")
    assert refused.status_code == 400
    assert "query" in refused.json()["error"]["message"]
    assert "document" in refused.json()["error"]["message"]
    assert refused.json()["error"]["param"] == "prompt_name"


def test_empty_strings_stay_in_place(fleet: Fleet, reference: Callable) -> None:
    """C14: an empty text is a legal text: special tokens only."""
    texts = ["alpha", "", "  ", "beta"]
    expected = encode_reference(reference(fleet.directories[MODEL]), texts)
    assert cosines(fleet.embed(MODEL, texts), expected).min() > 0.9999
    assert cosines(fleet.embed(MODEL, ""), expected[1:2]).min() > 0.9999


@pytest.mark.skipif(not SHARED.exists(), reason="the retrieval sets do not lie beside this checkout")
def test_cranfield_ndcg(fleet: Fleet) -> None:
    """nDCG@10 through the server, title and text joined by a space, equals the reference's 0.3953."""
    corpus, queries = (read_jsonl(SHARED / "cranfield" / name) for name in ("corpus.jsonl.gz", "queries.jsonl.gz"))
    qrels: dict[str, dict[str, int]] = {}
    for line in (SHARED / "cranfield" / "qrels" / "test.tsv").read_text().splitlines()[1:]:
        query, document, score = line.split("\t")
        qrels.setdefault(query, {})[document] = int(score)
    with shoal.Client(fleet.url, timeout_s=600) as client:
        documents = client.embed([f"{row['title']} {row['text']}" for row in corpus], model=MODEL).vectors
        asked = client.embed([row["text"] for row in queries], model=MODEL).vectors
    order = np.argsort(-(asked @ documents.T), axis=1, kind="stable")[:, :10]
    discounts = 1 / np.log2(np.arange(2, 12))
    scores = []
    for row, ranked in zip(queries, order, strict=True):
        relevant = qrels.get(row["_id"], {})
        gains = np.array([relevant.get(corpus[i]["_id"], 0) for i in ranked])
        ideal = np.sort(np.array(list(relevant.values()) + [0] * 10))[::-1][:10]
        scores.append(float(gains @ discounts / (ideal @ discounts)))
    print(f"nDCG@10 {np.mean(scores):.4f}")
    assert np.mean(scores) == pytest.approx(0.3953, abs=0.002)
    assert_alive(fleet.url, MODEL)


def read_jsonl(path: Path) -> list[dict[str, str]]:
    with gzip.open(path, "rt") as lines:
        return [json.loads(line) for line in lines]
