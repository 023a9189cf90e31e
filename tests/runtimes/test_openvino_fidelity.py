"""The demo model against sentence-transformers: float32, and bfloat16 where the CPU has it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import openvino
import pytest
from sentence_transformers import SentenceTransformer
from tests.runtimes.runtime_models import Ids, cosines, features

from shoal.catalog.spec import ModelSpec
from shoal.errors import ModelRefused
from shoal.runtimes.base import RuntimeOptions
from shoal.runtimes.openvino.runtime import OpenVINORuntime

HAS_BFLOAT16 = "BF16" in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")

Case = tuple[list[Ids], npt.NDArray[np.float32]]


@pytest.fixture(scope="module")
def case(demo_spec: ModelSpec) -> Case:
    """200 texts of 1 to 600 words, their token ids, and the reference vectors."""
    reference = SentenceTransformer(demo_spec.directory, device="cpu")
    generator = np.random.default_rng(7)
    words = [word for word in (Path(demo_spec.directory) / "vocab.txt").read_text().split() if word.isalpha()]
    counts = np.concatenate([np.arange(1, 41), generator.integers(1, 120, 130), generator.integers(120, 601, 30)])
    texts = [" ".join(generator.choice(words, count)) for count in counts]
    limit = reference.max_seq_length
    ids = [
        np.array(reference.tokenizer(text, truncation=True, max_length=limit)["input_ids"], np.int32) for text in texts
    ]
    return ids, reference.encode(texts)


def test_float32_equals_the_reference_alone_and_mixed(
    runtime: OpenVINORuntime, demo_spec: ModelSpec, case: Case
) -> None:
    ids, expected = case
    session = runtime.load(demo_spec, RuntimeOptions(precision="float32"))
    assert session.facts.precision == "float32"
    mixed = session.run(features(ids))["dense"]
    alone = np.concatenate([session.run(features([text]))["dense"] for text in ids[::4]])
    for vectors, wanted in ((mixed, expected), (alone, expected[::4])):
        assert cosines(vectors, wanted).min() >= 0.99999
        assert np.abs(vectors - wanted).max() < 1e-4


@pytest.mark.skipif(not HAS_BFLOAT16, reason="this CPU does not compute in bfloat16 natively")
def test_bfloat16_is_near_the_reference(runtime: OpenVINORuntime, demo_spec: ModelSpec, case: Case) -> None:
    ids, expected = case
    session = runtime.load(demo_spec, RuntimeOptions(precision="auto"))
    assert session.facts.precision == "bfloat16"
    assert cosines(session.run(features(ids))["dense"], expected).min() >= 0.999


@pytest.mark.skipif(HAS_BFLOAT16, reason="this CPU computes in bfloat16 natively")
def test_bfloat16_is_refused_where_the_cpu_lacks_it(runtime: OpenVINORuntime, demo_spec: ModelSpec) -> None:
    assert runtime.load(demo_spec, RuntimeOptions(precision="auto")).facts.precision == "float32"
    with pytest.raises(ModelRefused, match="bfloat16, which this CPU does not compute in natively"):
        runtime.load(demo_spec, RuntimeOptions(precision="bfloat16"))
