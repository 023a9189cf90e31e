"""The API's own description, held to: requests generated from it, valid and not, are answered as it says."""

from __future__ import annotations

from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import given
from schemathesis import GenerationMode, checks
from schemathesis.specs.openapi import checks as openapi_checks

from fuzz.effort import tries
from shoal.gateway.openapi import describe
from tiny_server import CLASSIFIER, COLBERT, EMBEDDER, RANKER, SPARSE, TAGGER, Tiny

NUM_EXAMPLES = 3
CHECKS = [
    checks.not_a_server_error,
    openapi_checks.status_code_conformance,
    openapi_checks.content_type_conformance,
    openapi_checks.response_headers_conformance,
    openapi_checks.response_schema_conformance,
    openapi_checks.negative_data_rejection,
]
PATHS = describe()["paths"]
CASES = [
    pytest.param(path, method, mode, id=f"{method} {path} {mode.value}")
    for path, methods in PATHS.items()
    for method in methods
    for mode in GenerationMode
    if method == "post" or mode is GenerationMode.POSITIVE  # nothing of the others can be invalid
]
WORDS = {
    "rerank": RANKER,
    "classify": CLASSIFIER,
    "predict": CLASSIFIER,
    "embed_sparse": SPARSE,
    "extract": TAGGER,
    "embed_all": COLBERT,
}


@pytest.fixture(scope="module")
def schema(tiny: Tiny) -> Any:
    return schemathesis.openapi.from_url(f"{tiny.url}/openapi.json")


@pytest.fixture(scope="module")
def session() -> Any:
    with requests.Session() as session:
        yield session


def aim(case: Any) -> None:
    """Name a model that is there, so that the request gets further than that."""
    model = WORDS.get(case.path.rsplit("/", 1)[-1], EMBEDDER)
    if isinstance(case.body, dict) and "model" in case.body:
        case.body["model"] = model
    if "id" in case.path_parameters:
        case.path_parameters["id"] = model


@pytest.mark.parametrize(("path", "method", "mode"), CASES)
def test_answers_are_as_described(
    schema: Any, session: requests.Session, path: str, method: str, mode: GenerationMode
) -> None:
    operation = schema[path][method.upper()]

    @tries(NUM_EXAMPLES)
    @given(case=operation.as_strategy(generation_mode=mode))
    def run(case: Any) -> None:
        case.headers.pop("X-Shoal-Timeout", None)  # one of a nanosecond is valid, and over
        if mode is GenerationMode.POSITIVE:
            aim(case)
        case.call_and_validate(session=session, checks=CHECKS, timeout=30)

    run()
