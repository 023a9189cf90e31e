"""Each family's classifier of tokens, from saved files to entities, against transformers' TokenClassificationPipeline.

To add a family: one row in `TAGGERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import pytest
import transformers
from transformers.pipelines.token_classification import AggregationStrategy

from parity import Parity
from shoal.adapters import open_adapter
from shoal.adapters.base import Entities
from shoal.catalog import resolve
from shoal.runtimes.base import RuntimeOptions
from shoal.runtimes.registry import open_runtime
from shoal.types import Aggregation, Entity, ExtractOptions
from tiny_heads import TinyHead
from tiny_models import NASTY_TEXTS, quiet

Build = Callable[[TinyHead], Path]
LABELS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC", "MISC")


def tagger(architecture: Any, *config: tuple[str, Any]) -> TinyHead:
    return TinyHead(architecture, "tags", num_labels=len(LABELS), labels=LABELS, config=config)


TAGGERS = {
    "bert": tagger("bert"),
    "roberta": tagger("roberta"),
    "xlm-roberta": tagger("xlm-roberta"),
    "distilbert": tagger("distilbert"),
    "mpnet": tagger("mpnet"),
    "electra": tagger("electra"),
    "ernie": tagger("ernie"),
    "deberta-v2": tagger("deberta-v2", ("type_vocab_size", 0), ("position_biased_input", False)),
    "modernbert": tagger("modernbert"),
    "nomic_bert": tagger("nomic_bert"),
    "gte": tagger("gte"),
    "qwen2": tagger("qwen2", ("num_key_value_heads", 1)),
    "qwen3": tagger("qwen3", ("num_key_value_heads", 2), ("head_dim", 16)),
    "llama": tagger("llama"),
    "mistral": tagger("mistral", ("num_key_value_heads", 2)),
}
TEXTS = [
    *(text for text in NASTY_TEXTS if text.strip() and len(text) < 400),
    "Ada Lovelace met e\u0301 Zo\u00eb \U0001f600 in S\u00e3o Paulo",
]


class Served:
    """A model from its files to what a caller gets."""

    def __init__(self, directory: Path, runtime: str = "openvino") -> None:
        self.spec = resolve(str(directory))
        self.adapter = open_adapter(self.spec)
        self.session = open_runtime(runtime).load(self.spec, RuntimeOptions(precision="float32", num_threads=1))

    def entities(self, texts: Sequence[str], every: Sequence[ExtractOptions]) -> list[list[list[Entity]]]:
        """What is found in each text by each of the options, which make the same runs."""
        for options in every:
            self.adapter.check(options)
        runs = self.adapter.prepare(texts, every[0])
        raw = self.session.run(self.adapter.collate(runs))
        finished = [self.adapter.finish(raw, options, runs)[0] for options in every]
        assert all(isinstance(one, Entities) for one in finished)
        return [one.found for one in finished if isinstance(one, Entities)]


def trimmed(text: str, row: dict[str, Any]) -> tuple[str, int, int]:
    """A row of the pipeline, less the blanks that some tokenizers count to a token."""
    start, end = row["start"], row["end"]
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    return row.get("entity_group") or row["entity"], start, end


@pytest.mark.parametrize("name", TAGGERS)
def test_a_tagger_equals_the_pipeline(name: str, tiny_head: Build, parity: Parity) -> None:
    directory = tiny_head(TAGGERS[name])
    every = [ExtractOptions(aggregation=aggregation, overflow="truncate") for aggregation in get_args(Aggregation)]
    expected = list(zip(*by_pipeline(directory, TEXTS), strict=True))
    for runtime in ("openvino", "torch"):
        served = Served(directory, runtime)
        assert served.spec.operations == ("extract", "tokenize")
        assert served.spec.card.labels == ("PER", "LOC", "MISC")
        apart = [served.entities([text], every) for text in TEXTS]
        alone = [[found[place][0] for found in apart] for place in range(len(every))]
        scores = [scores_of(expected, found) for found in (served.entities(TEXTS, every), alone)]
        assert len(scores[0][0]) > 100
        parity.check(
            TAGGERS[name].architecture,
            "tags",
            runtime,
            scores[0][0],
            *(found for _, found in scores),
            reference="transformers",
        )


def scores_of(expected: list[Any], served: list[list[list[Entity]]]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Scores of all entities, by the pipeline and as served; they must be the same ones at the same places."""
    scores: tuple[list[float], list[float]] = ([], [])
    for every_rows, every_found in zip(expected, served, strict=True):
        for text, rows, found in zip(TEXTS, every_rows, every_found, strict=True):
            places = [(entity.label, entity.start, entity.end) for entity in found]
            assert places == [trimmed(text, row) for row in rows], text
            assert all(text[entity.start : entity.end] == entity.text for entity in found)
            scores[0].extend(row["score"] for row in rows)
            scores[1].extend(entity.score for entity in found)
    return np.array(scores[0]), np.array(scores[1])


def by_pipeline(directory: Path, texts: Sequence[str]) -> list[list[list[dict[str, Any]]]]:
    """The rows of each text by each aggregation, from one forward."""
    with quiet():
        pipeline: Any = transformers.pipeline("token-classification", model=str(directory), device="cpu")
        every = [AggregationStrategy(aggregation) for aggregation in get_args(Aggregation)]
        outputs = [
            [pipeline.forward(inputs) for inputs in pipeline.preprocess(text, is_split_into_words=False)]
            for text in texts
        ]
        return [[pipeline.postprocess(list(output), strategy) for strategy in every] for output in outputs]
