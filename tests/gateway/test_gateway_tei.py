"""Which model TEI's surface asks, where its requests name none."""

from __future__ import annotations

import numpy as np
import pytest

from gateway.answering import vector
from gateway.conftest import Running


@pytest.mark.parametrize("path", ["/tei/org/plain-model/embed", "/tei/plain/embed", "/tei/org/plain-model"])
async def test_the_path_names_it(running: Running, path: str) -> None:
    reply = await running.http.post(path, json={"inputs": ["a", "b"]})
    assert reply.status_code == 200, reply.text
    np.testing.assert_allclose(reply.json(), [vector("a"), vector("b")], atol=1e-6)


@pytest.mark.parametrize("path", ["/tei/embed", "/embed", "/tei", "/tei/"])
async def test_several_could_be_meant(running: Running, path: str) -> None:
    reply = await running.http.post(path, json={"inputs": "a"})
    assert reply.status_code == 400
    assert "/tei/MODEL" in reply.json()["error"]
    assert "org/plain-model" in reply.json()["error"]


async def test_the_only_one_is_meant(running: Running) -> None:
    running.worker.cards = running.worker.cards[:1]
    running.worker.announce()
    reply = await running.http.post("/embed", json={"inputs": "a"})
    np.testing.assert_allclose(reply.json(), [vector("a")], atol=1e-6)
    about = await running.http.get("/info")
    assert about.json()["model_id"] == "org/plain-model"
    none = await running.http.post("/rerank", json={"query": "q", "texts": ["a"]})
    assert (none.status_code, none.json()["error_type"]) == (400, "validation")


async def test_statuses_are_teis(running: Running) -> None:
    for text, status, kind in (("poison", 422, "validation"), ("x" * 20_000, 413, "validation")):
        reply = await running.http.post("/tei/plain/embed", json={"inputs": [text]})
        assert (reply.status_code, reply.json()["error_type"]) == (status, kind)
        assert "inputs[0]" in reply.json()["error"]
    running.worker.states = dict.fromkeys(running.worker.states, "loading")
    running.worker.announce()
    reply = await running.http.get("/tei/health")
    assert (reply.status_code, reply.json()["error_type"]) == (503, "unhealthy")
