"""Each family's classifier of tokens, from saved files to entities, against transformers' TokenClassificationPipeline.

To add a family: one row in `TAGGERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

import pytest
import transformers
from transformers.pipelines.token_classification import AggregationStrategy

from shoal.adapters import open_adapter
from shoal.adapters.base import Entities, Entity
from shoal.catalog import resolve
from shoal.runtimes.base import RuntimeOptions
from shoal.runtimes.registry import open_runtime
from shoal.types import Aggregation, ExtractOptions
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
def test_a_tagger_equals_the_pipeline(name: str, tiny_head: Build) -> None:
    directory = tiny_head(TAGGERS[name])
    served = Served(directory)
    assert served.spec.operations == ("extract",)
    assert served.spec.card.labels == ("PER", "LOC", "MISC")
    every = [ExtractOptions(aggregation=aggregation, overflow="truncate") for aggregation in get_args(Aggregation)]
    together = served.entities(TEXTS, every)
    alone = [served.entities([text], every) for text in TEXTS]
    num_found, worst = 0, 0.0
    for place, expected in enumerate(zip(*by_pipeline(directory, TEXTS), strict=True)):
        for number, (text, rows) in enumerate(zip(TEXTS, expected, strict=True)):
            for found in (together[place][number], alone[number][place][0]):
                places = [(entity.label, entity.start, entity.end) for entity in found]
                assert places == [trimmed(text, row) for row in rows], (every[place].aggregation, text)
                assert all(text[entity.start : entity.end] == entity.text for entity in found)
                differences = [abs(entity.score - row["score"]) for entity, row in zip(found, rows, strict=True)]
                worst = max([worst, *differences])
                num_found += len(found)
    print(f"{name}: {num_found} entities, worst {worst:.1e}")
    assert num_found > 300
    assert worst <= 1e-4


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
