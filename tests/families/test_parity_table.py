"""parity.json speaks of every family, output and runtime that the code has, and of none that it has not."""

from __future__ import annotations

from parity import LEAST_COSINE, MOST_DIFFERENCE, load_rows
from shoal.catalog.families import FAMILIES
from shoal.catalog.heads import HEADS

JUDGES = {"qwen2", "qwen3", "llama", "mistral", "gemma3_text"}
"""Families of decoders, which rank by their words for yes and no."""
ALSO = {"xlm-roberta", "xlm-roberta (bge-m3)"}
"""Model types that share another family's row and have tiny models of their own, and bge-m3 with its own heads."""
MULTIVECTOR = {"bert", "distilbert", "modernbert", "mpnet", "xlm-roberta", "xlm-roberta (bge-m3)"}
"""Those that have a tiny model with a vector a token; what follows an encoder is the same for all."""


def expected() -> set[tuple[str, str, str]]:
    """(family, output, runtime) of what can be served."""
    names = {family.name for family in FAMILIES} | {"static"}
    outputs = {(name, "dense") for name in names}
    for name, heads in HEADS.items():
        outputs.add((name, "tags"))
        if heads.classifier or name in JUDGES:
            outputs.add((name, "rerank"))
        if heads.vocabulary:
            outputs.add((name, "sparse"))
    outputs |= {(name, "multivector") for name in MULTIVECTOR}
    return {(*output, runtime) for output in outputs for runtime in ("openvino", "torch")}


def test_every_family_and_output_has_been_compared_in_every_runtime_that_serves_it() -> None:
    recorded = {(row.family, row.output, row.runtime.partition(" ")[0]) for row in load_rows()}
    assert expected() - recorded == set(), "run pytest tests/families tests/torch_runtime --record-parity"
    families = {family for family, _, _ in expected()} | ALSO
    assert {row[0] for row in recorded} <= families


def test_what_was_recorded_is_within_the_tolerance() -> None:
    for row in load_rows():
        assert row.difference <= MOST_DIFFERENCE, row
        assert (row.cosine_distance or 0) <= 1 - LEAST_COSINE, row
